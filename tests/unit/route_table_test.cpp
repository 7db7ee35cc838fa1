// The route table: what is shipped, and that the choice follows the table and nothing else.
#include "route/table.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "route/route.hpp"

namespace nearlight::route {
namespace {

using testing::HasSubstr;
using testing::Not;

const Target kCpu{false, "", 2}, kH200{true, "NVIDIA H200", 2}, kOther{true, "NVIDIA L4", 2};

Route route_of(const Table* table, bool gpu, std::size_t bytes, DataType type = DataType::f32) {
  return all_reduce({.gpu = gpu,
                     .nranks = 2,
                     .count = bytes / size_of(type),
                     .type = type,
                     .op = ReduceOp::sum,
                     .regions = 64,
                     .slots = 2048,
                     .cells = 4096,
                     .packets = 8192,
                     .table = table});
}

// What was measured on two H200, in numbers.
TEST(RouteTable, TheShippedOneOfTheH200) {
  const Table table = shipped_table(kH200);
  EXPECT_EQ(table.origin, Origin::measured);
  EXPECT_EQ(table.ll_limit_bytes, 524'288u);
  EXPECT_EQ(table.sentinel_first_bytes, 4'096u);
  EXPECT_EQ(table.sentinel_limit_bytes, 8'388'608u);
  EXPECT_EQ(table.sentinel_any_limit_bytes, 2'097'152u);
  EXPECT_EQ(table.two_shot_gain_bytes, 294'912u);
  EXPECT_EQ(table.few_ctas, 64u);
  EXPECT_EQ(table.ll_threads, 128u);
  EXPECT_EQ(table.ll_large_threads, 512u);
  EXPECT_EQ(table.simple_threads, 512u);
  EXPECT_EQ(table.simple_cta_bytes, 8192u);
  EXPECT_EQ(shipped_table(kCpu).ll_limit_bytes, 32u);
}

TEST(RouteTable, OtherGpusTakeTheSameNumbersAndSaySo) {
  for (const Target& target : {kOther, Target{true, "", 2}}) {
    const Table table = shipped_table(target);
    EXPECT_EQ(table.origin, Origin::assumed);
    for (const TableField& field : fields_of(true)) {
      EXPECT_EQ(table.*field.value, kH200Table.*field.value) << field.name;
    }
    for (std::size_t bytes = 8; bytes <= std::size_t{64} << 20; bytes *= 2) {
      const Route here = route_of(&table, true, bytes), there = route_of(nullptr, true, bytes);
      EXPECT_EQ(here.protocol, there.protocol);
      EXPECT_EQ(here.grid, there.grid);
      EXPECT_EQ(here.threads, there.threads);
      EXPECT_EQ(here.held, there.held);
      EXPECT_THAT(here.reason, HasSubstr("H200"));
      EXPECT_THAT(here.reason, HasSubstr(there.reason));
      EXPECT_THAT(there.reason, Not(HasSubstr("H200")));
    }
  }
}

TEST(RouteTable, TheChoiceFollowsTheTable) {
  Table cpu = kCpuTable;
  cpu.origin = Origin::file;
  cpu.ll_limit_bytes = 4096;
  EXPECT_EQ(route_of(&cpu, false, 4096).protocol, Protocol::ll);
  EXPECT_EQ(route_of(&cpu, false, 4104).protocol, Protocol::simple);
  EXPECT_THAT(route_of(&cpu, false, 4096).reason, HasSubstr("NEARLIGHT_ROUTE_TABLE"));

  Table gpu = kH200Table;
  gpu.sentinel_first_bytes = 4096;
  gpu.sentinel_limit_bytes = 32 * 1024;
  gpu.ll_limit_bytes = 64 * 1024;
  gpu.ll_threads = 64;
  gpu.simple_threads = 256;
  gpu.simple_cta_bytes = 16 * 1024;
  gpu.few_ctas = 32;
  EXPECT_EQ(route_of(&gpu, true, 4088).protocol, Protocol::ll);
  EXPECT_EQ(route_of(&gpu, true, 4088).threads, 64u);
  EXPECT_EQ(route_of(&gpu, true, 4096).protocol, Protocol::sentinel);
  EXPECT_EQ(route_of(&gpu, true, 32 * 1024).protocol, Protocol::sentinel);
  EXPECT_EQ(route_of(&gpu, true, 64 * 1024).protocol, Protocol::ll);
  EXPECT_EQ(route_of(&gpu, true, 64 * 1024 + 8).protocol, Protocol::simple);
  EXPECT_EQ(route_of(&gpu, true, 128 * 1024).threads, 256u);
  EXPECT_EQ(route_of(&gpu, true, 128 * 1024).grid, 8u);
  EXPECT_EQ(route_of(&gpu, true, 1 << 24).grid, 32u);
}

TEST(RouteTable, EveryFieldIsListedOnceAndShippedWithinItsBounds) {
  for (const Target& target : {kCpu, kH200}) {
    std::set<std::string> names;
    const Table table = shipped_table(target);
    for (const TableField& field : fields_of(target.gpu)) {
      EXPECT_TRUE(names.insert(field.name).second) << field.name;
      EXPECT_GE(table.*field.value, field.lowest) << field.name;
      EXPECT_LE(table.*field.value, field.highest) << field.name;
      EXPECT_EQ(table.*field.value % field.step, 0u) << field.name;
    }
  }
  // A number that is not listed could not be read, printed or compared between ranks.
  EXPECT_EQ(sizeof(Table), sizeof(std::uint64_t) * (fields_of(true).size() + 1));
}

TEST(RouteTable, EveryFieldIsInTheDigest) {
  const std::uint64_t digest = digest_of(kH200Table);
  EXPECT_EQ(digest_of(shipped_table(kH200)), digest);
  for (const TableField& field : fields_of(true)) {
    Table other = kH200Table;
    other.*field.value += field.step;
    EXPECT_NE(digest_of(other), digest) << field.name;
  }
  EXPECT_NE(digest_of(shipped_table(kOther)), digest);
}

TEST(RouteTable, PacketsHoldWhatTheTableGivesToTheSentinel) {
  EXPECT_EQ(packets_for(kH200Table, 2, 128), 4096u);
  EXPECT_EQ(packets_for(kH200Table, 8, 128), 1024u);
  EXPECT_EQ(packets_for(kH200Table, 3, 128), 3072u);  // 2731 at least
  EXPECT_EQ(packets_for(kH200Table, 2, 1), 1u << 19);
  EXPECT_EQ(packets_for(kCpuTable, 2, 1), 512u);
  Table most = kH200Table;
  most.sentinel_any_limit_bytes = std::uint64_t{64} << 20;
  EXPECT_EQ(packets_for(most, 2, 1), kMostPackets);
  EXPECT_EQ(packets_for(most, 2, 128), std::uint32_t{32} * 1024);
}

TEST(RouteTable, SaysWhereItIsFrom) {
  EXPECT_EQ(describe(shipped_table(kCpu), kCpu), "shipped for CPU ranks");
  EXPECT_EQ(describe(shipped_table(kH200), kH200), "shipped for NVIDIA H200");
  EXPECT_EQ(describe(shipped_table(kOther), kOther), "shipped for NVIDIA H200, not measured on NVIDIA L4");
}

}  // namespace
}  // namespace nearlight::route
