#include "cli/bench/table.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "cli/bench/present.hpp"
#include "cli/bench/run_host.hpp"
#include "cli/exit_code.hpp"

namespace nearlight::bench {
namespace {

using testing::HasSubstr;
using testing::Not;

Measured measured(std::size_t count, bool in_place, double us, std::size_t wrong = 0) {
  Measured entry;
  entry.what = {count, DataType::f32, ReduceOp::sum};
  entry.impl = "nearlight";
  entry.in_place = in_place;
  entry.checked = true;
  entry.wrong = wrong;
  entry.choice = {"one_shot", "ll", 4, ""};
  for (int i = 0; i < 100; ++i) entry.samples.add_us(us);
  return entry;
}

TEST(PerfTable, HasTheColumnsOfNcclTests) {
  const Measured small = measured(256, false, 37.375), small_in = measured(256, true, 33.89);
  const Measured large = measured(1u << 29, false, 9074.5), large_in = measured(1u << 29, true, 12345.6);
  EXPECT_EQ(perf_table({&small, &small_in, &large, &large_in}, 2),
            "#\n"
            "#                                                              out-of-place                     "
            "  in-place          \n"
            "#       size         count      type   redop    root     time   algbw   busbw  #wrong     time  "
            " algbw   busbw  #wrong\n"
            "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)             (us)  "
            "(GB/s)  (GB/s)        \n"
            "        1024           256     float     sum      -1    37.38    0.03    0.03       0    33.89  "
            "  0.03    0.03       0\n"
            "  2147483648     536870912     float     sum      -1   9074.5  236.65  236.65       0    12346  "
            "173.95  173.95       0\n"
            "# Out of bounds values : 0 OK\n"
            "# Avg bus bandwidth    : 102.664\n");
}

TEST(PerfTable, OneVariantAlone) {
  const Measured only = measured(2, false, 1.5);
  const std::string text = perf_table({&only}, 4);
  EXPECT_THAT(text, Not(HasSubstr("in-place")));
  EXPECT_THAT(
      text,
      HasSubstr("           8             2     float     sum      -1     1.50    0.01    0.01       0\n"));
}

TEST(PerfTable, WrongAndUncheckedAreSaid) {
  const Measured wrong = measured(2, false, 1.5, 3);
  EXPECT_THAT(perf_table({&wrong}, 2), HasSubstr("# Out of bounds values : 3 FAILED\n"));
  Measured unchecked = measured(2, false, 1.5);
  unchecked.checked = false;
  EXPECT_THAT(perf_table({&unchecked}, 2), HasSubstr("# Out of bounds values : not checked\n"));
  EXPECT_THAT(perf_table({&unchecked}, 2), HasSubstr("0.01     N/A\n"));
}

TEST(BusBandwidth, IsNcclTests) {
  EXPECT_DOUBLE_EQ(algorithm_gbs(1000, 1.0), 1.0);
  EXPECT_DOUBLE_EQ(bus_gbs(1000, 1.0, 2), 1.0);
  EXPECT_DOUBLE_EQ(bus_gbs(1000, 1.0, 4), 1.5);
  EXPECT_DOUBLE_EQ(bus_gbs(1000, 1.0, 1), 0.0);
  EXPECT_DOUBLE_EQ(bus_gbs(1000, 1.0, 4, Collective::all_gather), 0.75);
  EXPECT_DOUBLE_EQ(bus_gbs(1000, 1.0, 4, Collective::broadcast), 1.0);
}

Setting setting() {
  Setting setting;
  setting.backend = "cuda";
  setting.memory = "cuda_vmm";
  setting.ranks = 2;
  setting.floors.l2rtt_us = 0.15;
  setting.floors.one_way_us = 0.65;
  setting.floors.sol_us = 0.8;
  setting.floors.store_gbs = 340;
  return setting;
}

TEST(PercentileTable, DashWithoutEnoughSamples) {
  const auto rows =
      rows_of({measured(32, false, 1.6), measured(32, true, 9.9)}, setting(), cli::Mode::kernel);
  ASSERT_EQ(rows.size(), 1u);  // out of place only
  const std::string text = percentile_table(rows);
  EXPECT_THAT(text, HasSubstr("         128  nearlight      1.600     1.600     1.600     1.600         -    "
                              " 1.600       100       2.00"));
}

TEST(PercentileTable, SkewStandsUnderItsName) {
  Measured entry = measured(32, false, 1.6);
  entry.skew.add_us(250.5);
  entry.cpu_us = 0.25;
  entry.scratch = 512;
  const std::string text = percentile_table(rows_of({entry}, setting(), cli::Mode::graph));
  EXPECT_THAT(text, HasSubstr("  ratio_limit        cpu       skew    scratch\n"));
  EXPECT_THAT(text, HasSubstr("                               (us)       (us)        (B)\n"));
  EXPECT_THAT(text, HasSubstr("      0.250    250.500        512\n"));
}

TEST(Peers, SettingsAreToldAndKept) {
  Setting with = setting();
  EXPECT_EQ(peer_settings(with), "");
  with.peers = {{"nccl_sym", "NCCL 2.28.9, symmetric windows"}, {"nvshmem", "not measured"}};
  ASSERT_EQ(setenv("NCCL_NVLS_ENABLE", "0", 1), 0);
  const std::string text = peer_settings(with);
  EXPECT_THAT(text, HasSubstr("# nccl_sym: NCCL 2.28.9, symmetric windows\n"));
  EXPECT_THAT(text, HasSubstr("# environment:"));
  EXPECT_THAT(text, HasSubstr(" NCCL_NVLS_ENABLE=0"));
  Measured peer = measured(32, false, 1.6);
  peer.impl = "nccl_sym";
  const cli::ResultFile file = file_of({}, with, rows_of({peer}, with, cli::Mode::graph));
  // Of those that have rows.
  EXPECT_THAT(file.peers, testing::ElementsAre(testing::Pair("nccl_sym", "NCCL 2.28.9, symmetric windows")));
  EXPECT_EQ(file.env.at("NCCL_NVLS_ENABLE"), "0");
  unsetenv("NCCL_NVLS_ENABLE");
}

TEST(OffsetTable, BestMedianAndWorst) {
  std::vector<Measured> all;
  for (const double us : {1.0, 0.8, 1.2, 1.6, 0.9}) all.push_back(measured(32, false, us));
  const auto spreads = spread_over_offsets(rows_of(all, setting(), cli::Mode::kernel));
  ASSERT_EQ(spreads.size(), 1u);
  EXPECT_EQ(spreads[0].offsets, 5u);
  EXPECT_DOUBLE_EQ(spreads[0].best_us, 0.8);
  EXPECT_DOUBLE_EQ(spreads[0].median_us, 1.0);
  EXPECT_DOUBLE_EQ(spreads[0].worst_us, 1.6);
  EXPECT_DOUBLE_EQ(spreads[0].ratio_best, 1.0);
  EXPECT_DOUBLE_EQ(spreads[0].ratio_median, 1.25);
  EXPECT_THAT(
      offset_table(spreads),
      HasSubstr("         128        5      0.800     1.000     1.600            1.00              1.25\n"));
}

TEST(Verdict, AWrongResultIsTheExitStatus) {
  EXPECT_EQ(verdict({measured(2, false, 1), measured(2, true, 1)}), cli::kExitOk);
  Measured wrong = measured(2, true, 1, 1);
  wrong.first_wrong = "rank 1: element 0 is 3, expected 4";
  testing::internal::CaptureStderr();
  EXPECT_EQ(verdict({measured(2, false, 1), wrong}), cli::kExitWrong);
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              HasSubstr("wrong result of nearlight, 8 bytes in place, rank 1: element 0"));
}

}  // namespace
}  // namespace nearlight::bench
