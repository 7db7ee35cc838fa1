#include "cli/machine.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nearlight::cli {
namespace {

using probe::Link;

probe::GpuFacts three_gpus() {
  probe::GpuFacts facts;
  facts.driver = "580.1";
  facts.cuda = "13.0";
  facts.devices.resize(3);
  facts.devices[0].name = facts.devices[1].name = "GPU A";
  facts.devices[2].name = "GPU B";
  facts.devices[0].links = {Link::none, Link::nvlink, Link::pcie};
  facts.devices[1].links = {Link::nvlink, Link::none, Link::nvlink};
  facts.devices[2].links = {Link::pcie, Link::nvlink, Link::none};
  return facts;
}

TEST(Machine, TwoAlikeGpus) {
  const Machine machine = describe_machine(three_gpus(), {0, 1}, "2.28.9");
  EXPECT_EQ(machine.gpu, "GPU A");
  EXPECT_EQ(machine.gpus, 2);
  EXPECT_EQ(machine.link, "NVLink");
  EXPECT_EQ(machine.driver, "580.1");
  EXPECT_EQ(machine.cuda, "13.0");
  EXPECT_EQ(machine.nccl, "2.28.9");
  EXPECT_EQ(machine.cpu, cpu_name());
}

TEST(Machine, TheSlowestLinkAndAllKinds) {
  const Machine machine = describe_machine(three_gpus(), {0, 1, 2}, "");
  EXPECT_EQ(machine.gpu, "GPU A + GPU B");
  EXPECT_EQ(machine.gpus, 3);
  EXPECT_EQ(machine.link, "PCIe");
  EXPECT_EQ(machine.nccl, "none");
}

TEST(Machine, OneGpuHasNoLink) {
  const Machine machine = describe_machine(three_gpus(), {2}, "");
  EXPECT_EQ(machine.gpu, "GPU B");
  EXPECT_EQ(machine.gpus, 1);
  EXPECT_EQ(machine.link, "none");
}

TEST(Machine, ACpuRunUsesSharedMemory) {
  const Machine machine = describe_machine({}, {}, "");
  EXPECT_EQ(machine.gpu, "none");
  EXPECT_EQ(machine.gpus, 0);
  EXPECT_EQ(machine.link, "shm");
  EXPECT_EQ(machine.driver, "none");
  EXPECT_EQ(machine.cuda, "none");
}

TEST(Machine, TheProcessorHasANameAndACount) {
  EXPECT_THAT(cpu_name(), testing::MatchesRegex(".+, [0-9]+ CPUs?"));
}

}  // namespace
}  // namespace nearlight::cli
