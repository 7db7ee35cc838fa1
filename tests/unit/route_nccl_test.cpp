// What is handed to the attached NCCL, and what is not.
#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "route/route.hpp"

namespace nearlight::route {
namespace {

constexpr int kTested = 22809, kRepaired = 23007;  // NCCL 2.28.9, 2.30.7

Facts facts(int nranks, std::size_t bytes, DataType type = DataType::f32, ReduceOp op = ReduceOp::sum) {
  Facts one;
  one.gpu = true;
  one.nranks = nranks;
  one.count = bytes / size_of(type);
  one.type = type;
  one.op = op;
  one.regions = 128;
  one.slots = 2048;
  one.cells = 4096;
  one.packets = 4096;
  one.nccl = {kTested, 90};
  return one;
}
Table from(std::uint64_t first_bytes) {
  Table table = kH200Table;
  table.nccl_first_bytes = first_bytes;
  return table;
}
bool says(const Route& route, const char* words) { return std::strstr(route.reason, words) != nullptr; }

// NCCL 2.28.3 to 2.29.7, types of 1 and 2 bytes, below 128 KiB: for every combination.
TEST(NcclFault, SmallTypesBelowTheLimitOfTheFaultyVersions) {
  const struct {
    int version;
    bool faulty;
  } versions[] = {{22703, false}, {22800, false}, {22802, false}, {22803, true},
                  {22809, true},  {22900, true},  {22907, true},  {22908, false},
                  {23000, false}, {23003, false}, {23007, false}};
  for (const auto& [version, faulty] : versions) {
    EXPECT_EQ(adds_small_types_wrongly(version), faulty) << version;
    for (const DataType type : kDataTypes) {
      for (const ReduceOp op : {ReduceOp::sum, ReduceOp::prod, ReduceOp::max, ReduceOp::min, ReduceOp::avg}) {
        for (const std::size_t bytes : {std::size_t{8}, std::size_t{64} << 10, std::size_t{70} << 10,
                                        kFirstSafeBytes - 8, kFirstSafeBytes, std::size_t{1} << 30}) {
          const char* const why = kept_from_nccl({version, 90}, type, op, bytes);
          const bool kept = faulty && size_of(type) <= 2 && bytes < kFirstSafeBytes;
          EXPECT_EQ(why != nullptr, kept) << version << ' ' << name_of(type) << ' ' << bytes;
          if (why != nullptr) {
            EXPECT_NE(std::strstr(why, "2.28.3 to 2.29.7"), nullptr) << why;
          }
        }
      }
    }
    EXPECT_EQ(faults_of_nccl(version).find("1 and 2 bytes") != std::string::npos, faulty) << version;
  }
}

TEST(NcclFault, KernelsThatDoNotWaitForTheirInput) {
  for (const int version : {22800, 22809, 22907, 23003, 23006}) {
    EXPECT_TRUE(starts_before_its_input(version)) << version;
    EXPECT_NE(faults_of_nccl(version).find("do not wait"), std::string::npos);
  }
  for (const int version : {0, 22703, 23007, 23100}) {
    EXPECT_FALSE(starts_before_its_input(version)) << version;
  }
  EXPECT_EQ(faults_of_nccl(kRepaired), "");
}

TEST(NcclHas, NoPreMultipliedSumAndFp8FromAVersionAndAGpuOn) {
  for (const DataType type : kDataTypes) {
    EXPECT_NE(kept_from_nccl({kTested, 90}, type, ReduceOp::premul_sum, 1 << 20), nullptr);
    EXPECT_NE(kept_from_nccl({0, 90}, type, ReduceOp::sum, 1 << 20), nullptr);
    const bool fp8 = type == DataType::f8e4m3 || type == DataType::f8e5m2;
    EXPECT_EQ(kept_from_nccl({22304, 90}, type, ReduceOp::sum, 1 << 20) != nullptr, fp8) << name_of(type);
    EXPECT_EQ(kept_from_nccl({22400, 90}, type, ReduceOp::sum, 1 << 20), nullptr) << name_of(type);
    EXPECT_EQ(kept_from_nccl({kTested, 89}, type, ReduceOp::sum, 1 << 20) != nullptr, fp8) << name_of(type);
  }
}

TEST(HandOver, FromTheTablesFirstBytesOn) {
  const Table table = from(1 << 20);
  for (const int nranks : {2, 3, 8}) {
    // As the table's other numbers, what a rank sends to all others.
    const auto others = static_cast<std::size_t>(nranks - 1);
    const std::size_t first = ((1 << 20) + others - 1) / others;
    for (const DataType type : {DataType::f32, DataType::f64, DataType::i32}) {
      const std::size_t element = size_of(type);
      const std::size_t at = (first + element - 1) / element * element;
      Facts below = facts(nranks, at - element, type), above = facts(nranks, at, type);
      below.table = above.table = &table;
      EXPECT_NE(all_reduce(below).algorithm, Algorithm::nccl) << nranks;
      const Route route = all_reduce(above);
      EXPECT_EQ(route.algorithm, Algorithm::nccl) << nranks;
      EXPECT_TRUE(says(route, "attached NCCL")) << route.reason;
      EXPECT_STREQ(protocol_name(route), "none");
      EXPECT_EQ(route.grid, 0u);
      EXPECT_EQ(route.threads, 0u);
      EXPECT_EQ(route.run_threads, 0u);
    }
  }
}

TEST(HandOver, NeverByTheShippedTable) {
  for (int bit = 3; bit < 62; ++bit) {
    EXPECT_NE(all_reduce(facts(2, std::size_t{1} << bit)).algorithm, Algorithm::nccl) << bit;
  }
  EXPECT_EQ(kH200Table.nccl_first_bytes, 0u);
}

TEST(HandOver, WhatNcclCannotDoStaysWithItsReason) {
  const Table table = from(64 * 1024);
  const auto kept = [&](Facts one, const char* why) {
    one.table = &table;
    const Route route = all_reduce(one);
    EXPECT_NE(route.algorithm, Algorithm::nccl) << why;
    EXPECT_TRUE(says(route, "not handed to NCCL")) << route.reason;
    EXPECT_TRUE(says(route, why)) << route.reason;
    // What runs is what ran without NCCL.
    const Route own = all_reduce(without_nccl(one));
    EXPECT_EQ(route.protocol, own.protocol);
    EXPECT_EQ(route.grid, own.grid);
    EXPECT_EQ(route.run_threads, own.run_threads);
  };
  kept(facts(2, 100 * 1024, DataType::bf16), "2.28.3 to 2.29.7");
  kept(facts(2, 100 * 1024, DataType::u8), "2.28.3 to 2.29.7");
  kept(facts(2, 1 << 20, DataType::f32, ReduceOp::premul_sum), "pre-multiplied");
  Facts old = facts(2, 1 << 20, DataType::f8e4m3);
  old.nccl.capability = 80;
  kept(old, "9.0");
  Facts narrow = facts(2, 1 << 20);
  narrow.max_ctas = 16;
  kept(narrow, "max_ctas");

  Facts now = facts(2, 100 * 1024, DataType::bf16);
  now.table = &table;
  now.nccl.version = kRepaired;
  EXPECT_EQ(all_reduce(now).algorithm, Algorithm::nccl);
  // Without an attached one the table's number says nothing.
  Facts none = facts(2, 1 << 20);
  none.table = &table;
  none.nccl = {};
  EXPECT_FALSE(says(all_reduce(none), "NCCL")) << all_reduce(none).reason;
  Facts alone = facts(1, 1 << 20);
  alone.table = &table;
  EXPECT_EQ(all_reduce(alone).algorithm, Algorithm::copy);
}

TEST(HandOver, ForcedByTheEnvironment) {
  for (const std::size_t bytes : {std::size_t{8}, std::size_t{1} << 20}) {
    Facts one = facts(2, bytes);
    one.forced.algorithm = Algorithm::nccl;
    EXPECT_EQ(all_reduce(one).algorithm, Algorithm::nccl);
    EXPECT_TRUE(says(all_reduce(one), "NEARLIGHT_FORCE_PATH"));
    Facts halves = facts(2, bytes, DataType::f16);
    halves.forced.algorithm = Algorithm::nccl;
    EXPECT_EQ(all_reduce(halves).algorithm == Algorithm::nccl, bytes >= kFirstSafeBytes);
    EXPECT_TRUE(says(all_reduce(halves), bytes >= kFirstSafeBytes ? "NEARLIGHT_FORCE_PATH" : "2.28.3"));
    one.nccl = {};
    EXPECT_NE(all_reduce(one).algorithm, Algorithm::nccl);
    EXPECT_TRUE(says(all_reduce(one), "none is attached"));
    EXPECT_NE(all_reduce(without_nccl(one)).algorithm, Algorithm::nccl);
    EXPECT_FALSE(says(all_reduce(without_nccl(one)), "NCCL"));
  }
}

TEST(HandOver, AskedForByTheCaller) {
  const auto route = forced_nccl(facts(2, 8));
  ASSERT_TRUE(route.ok());
  EXPECT_EQ(route->algorithm, Algorithm::nccl);
  EXPECT_TRUE(says(*route, "caller"));
  Facts none = facts(2, 8);
  none.nccl = {};
  EXPECT_EQ(forced_nccl(none).status().code(), Code::invalid_argument);
  EXPECT_NE(forced_nccl(none).status().text().find("algorithm: nccl"), std::string::npos);
  for (const Facts& not_there :
       {facts(2, 8, DataType::bf16), facts(2, 8, DataType::f32, ReduceOp::premul_sum)}) {
    const auto refused = forced_nccl(not_there);
    EXPECT_EQ(refused.status().code(), Code::unsupported);
    EXPECT_NE(refused.status().text().find("algorithm: nccl"), std::string::npos) << refused.status().text();
  }
}

}  // namespace
}  // namespace nearlight::route
