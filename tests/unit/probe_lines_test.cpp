// What lies between two GPUs, from made-up facts, and what a test of lines comes to.
#include <gtest/gtest.h>

#include "probe/lines.hpp"

namespace nearlight::probe {
namespace {

constexpr const char *kHere = "pci0000:00/0000:00:01.0/0000:01:00.0",
                     *kNextDoor = "pci0000:00/0000:00:01.0/0000:02:00.0",
                     *kSameRoot = "pci0000:00/0000:00:03.0/0000:05:00.0",
                     *kOtherRoot = "pci0000:80/0000:80:01.0/0000:81:00.0";

// Two GPUs that reach each other over PCIe.
PathFacts pcie(const char* other_place, int other_node) {
  PathFacts facts;
  facts.peer_access = true;
  facts.place = kHere;
  facts.node = 0;
  facts.other_place = other_place;
  facts.other_node = other_node;
  return facts;
}

TEST(Paths, AreToldApart) {
  PathFacts nvlink = pcie(kOtherRoot, 1);
  nvlink.native_atomics = true;
  EXPECT_EQ(path_of(nvlink), PathType::nvl);
  EXPECT_EQ(path_of(pcie(kNextDoor, 0)), PathType::pxb);
  EXPECT_EQ(path_of(pcie(kSameRoot, 0)), PathType::phb);
  EXPECT_EQ(path_of(pcie(kOtherRoot, 0)), PathType::phb);
  EXPECT_EQ(path_of(pcie(kOtherRoot, 1)), PathType::sys);
  EXPECT_EQ(path_of(pcie("", -1)), PathType::sys);
  // C2C has native atomics as NVLink has.
  nvlink.coherent_cpu = true;
  EXPECT_EQ(path_of(nvlink), PathType::c2c);
  PathFacts apart;
  EXPECT_EQ(path_of(apart), PathType::sys);
  apart.native_atomics = true;  // means nothing without access
  EXPECT_EQ(path_of(apart), PathType::sys);
  apart.seen = false;
  EXPECT_EQ(path_of(apart), PathType::unknown);
  apart.same_gpu = true;
  EXPECT_EQ(path_of(apart), PathType::same_gpu);
}

TEST(Lines, AreWholeOnlyIfAllCameAndNoneWasTorn) {
  EXPECT_EQ(verdict_of({100, 0, 0}, 100), LineVerdict::whole);
  EXPECT_EQ(verdict_of({99, 0, 0}, 100), LineVerdict::late);
  EXPECT_EQ(verdict_of({100, 0, 1}, 100), LineVerdict::late);
  EXPECT_EQ(verdict_of({100, 1, 0}, 100), LineVerdict::torn);
  EXPECT_EQ(verdict_of({10, 1, 90}, 100), LineVerdict::torn);
  EXPECT_EQ(verdict_of({}, 100), LineVerdict::late);
}

TEST(Lines, AreDescribed) {
  LineReport report;
  EXPECT_EQ(describe(report),
            "between GPUs: unknown; stores of lines: not tested; adds to lines: not tested");
  report.path = PathType::nvl;
  report.stores = LineVerdict::torn;
  report.of_stores = {20, 3, 1};
  report.adds = LineVerdict::whole;
  report.of_adds = {30, 0, 0};
  EXPECT_EQ(describe(report),
            "between GPUs: NVLink; stores of lines: torn (20 lines, 3 torn, 1 missing); adds to lines: whole "
            "(30 lines, 0 torn, 0 missing)");
}

}  // namespace
}  // namespace nearlight::probe
