// The chosen path beside a peer of the same run.
#include "cli/against_peer.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/sample_results.hpp"

namespace nearlight::cli {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// Sizes 128, 256, ...: p50 of ours and of nccl.
ResultFile file_of(std::initializer_list<std::pair<double, double>> times) {
  ResultFile file = test::sample_results();
  file.rows.clear();
  std::uint64_t bytes = 128;
  for (const auto& [own, nccl] : times) {
    for (const auto& [impl, us] : {std::pair("nearlight", own), std::pair("nccl", nccl)}) {
      ResultRow row = test::sample_row(file.floors, impl, us);
      row.bytes = bytes;
      file.rows.push_back(row);
    }
    bytes *= 2;
  }
  return file;
}

TEST(AgainstPeer, ASlowerPathIsFoundAndNamed) {
  EXPECT_THAT(slower_than_peer(file_of({{1, 2}, {2, 2}, {2.09, 2}}), "nccl", kSlowerThanNccl), IsEmpty());
  const auto slower = slower_than_peer(file_of({{1, 2}, {2.2, 2}, {68, 2}}), "nccl", kSlowerThanNccl);
  ASSERT_EQ(slower.size(), 2u);
  EXPECT_THAT(slower[0],
              testing::AllOf(HasSubstr("bf16 sum, 2 ranks, mode graph, 256 B"), HasSubstr("1.10 times")));
  EXPECT_THAT(slower[1], HasSubstr("34.00 times"));
}

TEST(AgainstPeer, OnlyWhatTheRouteChoseCounts) {
  ResultFile file = file_of({{1, 2}});
  ResultRow forced = test::sample_row(file.floors, "nearlight", 9);
  forced.bytes = 128;
  forced.forced = "protocol=ll";
  file.rows.push_back(forced);
  forced.forced.clear();
  forced.scratch = 512;
  file.rows.push_back(forced);
  ResultRow elsewhere = test::sample_row(file.floors, "nearlight", 9);
  elsewhere.bytes = 128;
  elsewhere.mode = Mode::eager;  // NCCL was not measured there
  file.rows.push_back(elsewhere);
  ASSERT_EQ(against_peer(file, "nccl").size(), 1u);
  EXPECT_THAT(slower_than_peer(file, "nccl", kSlowerThanNccl), IsEmpty());
  EXPECT_THAT(against_peer(file, "openmpi"), IsEmpty());
}

TEST(AgainstPeer, SeveralRowsOfAMessageAreTheirMedian) {
  ResultFile file = file_of({{1, 2}});
  for (const double us : {1.5, 9.0}) {
    ResultRow row = test::sample_row(file.floors, "nearlight", us);
    row.bytes = 128;
    file.rows.push_back(row);
  }
  ASSERT_EQ(against_peer(file, "nccl").size(), 1u);
  EXPECT_EQ(against_peer(file, "nccl")[0].own_us, 1.5);
}

TEST(AgainstPeer, CrossoversAreTold) {
  const std::string kind = "all_reduce bf16 sum, 2 ranks, mode graph: nearlight is faster than nccl ";
  EXPECT_THAT(crossovers_with(file_of({{1, 2}, {1, 2}}), "nccl"),
              ElementsAre(kind + "at every size, 128 B to 256 B"));
  EXPECT_THAT(crossovers_with(file_of({{3, 2}, {3, 2}}), "nccl"),
              ElementsAre(kind + "at no size, 128 B to 256 B"));
  EXPECT_THAT(crossovers_with(file_of({{1, 2}, {1, 2}, {3, 2}, {3, 2}}), "nccl"),
              ElementsAre(kind + "up to 256 B, from 512 B on nccl is"));
  EXPECT_THAT(crossovers_with(file_of({{1, 2}, {3, 2}, {1, 2}, {3, 2}}), "nccl"),
              ElementsAre(kind + "up to 512 B, from 1 KiB on nccl is (but for 1 sizes below)"));
}

}  // namespace
}  // namespace nearlight::cli
