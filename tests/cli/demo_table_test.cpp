#include "cli/demo_table.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nearlight::cli {
namespace {

using testing::HasSubstr;
using testing::Not;

bench::Measured measured(const char* impl, std::size_t count, double us, std::size_t wrong) {
  bench::Measured entry;
  entry.what = {count, DataType::bf16, ReduceOp::sum};
  entry.impl = impl;
  entry.wrong = wrong;
  for (int i = 0; i < 10; ++i) entry.samples.add_us(us);
  return entry;
}

Workload workload() {
  Workload workload;
  workload.name = "toy-1b";
  workload.hidden_size = 8192;
  workload.all_reduces_per_step = 100;
  workload.batch = {1, 2};
  return workload;
}

bench::Setting setting() {
  bench::Setting setting;
  setting.memory = "nccl_window";
  setting.ranks = 2;
  setting.floors.sol_us = 0.8;
  setting.floors.store_gbs = 340;
  return setting;
}

TEST(DemoTable, ShowsTheStepAndThePeerBesideIt) {
  const std::string text =
      demo_table(workload(), "2 ranks on 2 x NVIDIA H200 (NVLink)", setting(), Mode::graph,
                 {measured("nearlight", 8192, 1.6, 0), measured("nccl", 8192, 6.4, 0),
                  measured("nearlight", 16384, 2.0, 0), measured("nccl", 16384, 7.0, 0)});
  EXPECT_THAT(text, HasSubstr("toy-1b: the all-reduces of one decode step, bf16 sum over 2 ranks"));
  EXPECT_THAT(text, HasSubstr("2 ranks on 2 x NVIDIA H200 (NVLink); memory nccl_window"));
  EXPECT_THAT(text, HasSubstr("    1     16 KiB    100       1.60      1.60      1.60         -     2.00     "
                              "1.89      160.0       6.40      640.0   4.00x\n"));
  EXPECT_THAT(text, HasSubstr("    2     32 KiB    100       2.00 "));
  EXPECT_THAT(text, HasSubstr("wrong results: 0 (every size checked"));
}

TEST(DemoTable, SaysWhatIsWrongAndLeavesThePeerOut) {
  const std::string text =
      demo_table(workload(), "here", setting(), Mode::eager, {measured("nearlight", 8192, 1.6, 5)});
  EXPECT_THAT(text, HasSubstr("wrong results: 5\n"));
  EXPECT_THAT(text, Not(HasSubstr("NCCL")));
}

TEST(SizeText, Units) {
  EXPECT_EQ(size_text(100), "100 B");
  EXPECT_EQ(size_text(1024), "1 KiB");
  EXPECT_EQ(size_text(1536), "1.5 KiB");
  EXPECT_EQ(size_text(7 << 20), "7 MiB");
}

}  // namespace
}  // namespace nearlight::cli
