#include <gtest/gtest.h>

#include "cli/results.hpp"

namespace nearlight::cli {
namespace {

Floors gpu_floors() {
  Floors floors;
  floors.l2rtt_us = 0.15;
  floors.one_way_us = 0.70;
  floors.sol_us = 0.85;
  floors.store_gbs = 340;
  floors.launch_floor_us = 0.53;
  floors.launch_floor_pdl_us = 0.44;
  floors.eager_floor_us = 6;
  return floors;
}

TEST(BytesToSend, AreWhatARankCannotAvoid) {
  EXPECT_DOUBLE_EQ(bytes_to_send("all_reduce", 1000, 2), 1000);  // 2 (n-1)/n
  EXPECT_DOUBLE_EQ(bytes_to_send("all_reduce", 1000, 8), 1750);
  EXPECT_DOUBLE_EQ(bytes_to_send("all_gather", 1000, 4), 750);
  EXPECT_DOUBLE_EQ(bytes_to_send("reduce_scatter", 1000, 4), 750);
  EXPECT_DOUBLE_EQ(bytes_to_send("all_to_all", 1000, 4), 750);
  EXPECT_DOUBLE_EQ(bytes_to_send("broadcast", 1000, 4), 1000);
  EXPECT_DOUBLE_EQ(bytes_to_send("reduce", 1000, 4), 1000);
  EXPECT_DOUBLE_EQ(bytes_to_send("send_recv", 1000, 2), 1000);
  EXPECT_DOUBLE_EQ(bytes_to_send("barrier", 0, 4), 0);
  for (const std::string_view collective : kCollectives)
    EXPECT_EQ(bytes_to_send(collective, 1000, 1), 0) << collective;
}

TEST(LimitUs, AddsLaunchFloorOfTheModeSpeedOfLightAndBytes) {
  const Floors floors = gpu_floors();
  // 340 GB/s are 340 000 bytes per microsecond.
  EXPECT_DOUBLE_EQ(limit_us(floors, "all_reduce", 340'000, 2, Mode::kernel), 0.85 + 1);
  EXPECT_DOUBLE_EQ(limit_us(floors, "all_reduce", 340'000, 2, Mode::graph), 0.44 + 0.85 + 1);
  EXPECT_DOUBLE_EQ(limit_us(floors, "all_reduce", 340'000, 2, Mode::eager), 6 + 0.85 + 1);
  EXPECT_DOUBLE_EQ(limit_us(floors, "barrier", 0, 2, Mode::kernel), 0.85);
}

TEST(LimitUs, TakesTheLowerLaunchFloor) {
  Floors floors = gpu_floors();
  floors.launch_floor_pdl_us = 0.6;  // dependent launch slower than a plain one
  EXPECT_DOUBLE_EQ(limit_us(floors, "barrier", 0, 2, Mode::graph), 0.53 + 0.85);
  floors.launch_floor_pdl_us.reset();
  EXPECT_DOUBLE_EQ(limit_us(floors, "barrier", 0, 2, Mode::graph), 0.53 + 0.85);
}

TEST(LimitUs, HasNoLaunchFloorOnACpu) {
  Floors floors = gpu_floors();
  floors.launch_floor_us.reset();
  floors.launch_floor_pdl_us.reset();
  floors.eager_floor_us.reset();
  for (const Mode mode : {Mode::kernel, Mode::graph, Mode::eager}) {
    EXPECT_DOUBLE_EQ(limit_us(floors, "barrier", 0, 2, mode), 0.85);
  }
}

TEST(SetTimes, FillsTimesAndBothRatios) {
  ResultRow row;
  row.bytes = 340'000;
  row.ranks = 2;
  row.mode = Mode::graph;
  const trace::Summary summary{20'000, 1, 2.29, 3, 4, 5, 6, 2.5};
  set_times(row, summary, gpu_floors());
  EXPECT_EQ(row.min_us, 1);
  EXPECT_EQ(row.p50_us, 2.29);
  EXPECT_EQ(row.p95_us, 3);
  EXPECT_EQ(row.p99_us, 4);
  EXPECT_EQ(row.p999_us, 5);
  EXPECT_EQ(row.max_us, 6);
  EXPECT_EQ(row.samples, 20'000u);
  EXPECT_DOUBLE_EQ(row.ratio_sol, 2.29 / 0.85);
  EXPECT_DOUBLE_EQ(row.ratio_limit, 1);
}

TEST(FloorsOf, CopiesTheReport) {
  probe::SolReport report;
  report.l2rtt_us = 1;
  report.one_way_us = 2;
  report.sol_us = 3;
  report.store_gbs = 4;
  report.launch_floor_us = 5;
  report.launch_floor_pdl_us = 6;
  report.eager_floor_us = 7;
  const Floors floors = floors_of(report);
  EXPECT_EQ(floors.l2rtt_us, 1);
  EXPECT_EQ(floors.one_way_us, 2);
  EXPECT_EQ(floors.sol_us, 3);
  EXPECT_EQ(floors.store_gbs, 4);
  EXPECT_EQ(floors.launch_floor_us, 5);
  EXPECT_EQ(floors.launch_floor_pdl_us, 6);
  EXPECT_EQ(floors.eager_floor_us, 7);
}

TEST(Names, Modes) {
  for (const Mode mode : {Mode::kernel, Mode::graph, Mode::eager}) EXPECT_EQ(parse_mode(name_of(mode)), mode);
  EXPECT_FALSE(parse_mode("Graph").has_value());
}

}  // namespace
}  // namespace nearlight::cli
