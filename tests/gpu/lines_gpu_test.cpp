// LL128 and the two-shot that adds, between two GPUs; and the test of lines that decides whether they may be
// asked for. Between ranks of one GPU lines arrive in pieces (seen on an H200: 32 bytes of a line came late).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "tests/gpu/ranks.hpp"
#include "tests/gpu/setups.hpp"
#include "tests/support/gpu_support.hpp"

namespace nearlight::test {
namespace {

using probe::LineVerdict;
using probe::PathType;
using route::Algorithm;
using route::Protocol;
using testing::HasSubstr;

constexpr std::size_t kBufferBytes = std::size_t{16} << 20;
constexpr DataType kAdded[] = {DataType::f32, DataType::f16, DataType::bf16};
// Around a line of 120 bytes, a warp's four, what a round holds, and more than that.
constexpr std::uint64_t kBytes[] = {
    4, 120, 240, 480, 484, 960, 2400, 4096, 16384, 65536 + 4, (1u << 19) + 8, 1u << 20, (3u << 20) + 12};

runtime::Options adding_options() {
  runtime::Options options = test_options();
  options.deterministic = false;
  return options;
}
runtime::CallOptions adding() {
  runtime::CallOptions options;
  options.algorithm = Algorithm::two_shot_atomic;
  return options;
}

class LinesGpu : public testing::TestWithParam<Setup> {};

// Sums of whole numbers are exact in whatever order they are added; avg divides them once.
TEST_P(LinesGpu, WhatAddsIsRightForEverySizePlaceAndAlignment) {
  Group group(GetParam(), adding_options(), kBufferBytes);
  ASSERT_TRUE(group.ok());
  std::uint64_t calls = 0;
  for (const DataType type : kAdded) {
    for (const ReduceOp op : {ReduceOp::sum, ReduceOp::avg}) {
      for (const std::uint64_t bytes : kBytes) {
        for (const bool in_place : {false, true}) {
          for (const std::size_t offset : {0, 4, 12}) {
            const auto id = static_cast<std::uint32_t>(calls++);
            group.run([&](Rank& rank) {
              // Another alignment on each rank.
              const std::size_t own = offset * static_cast<std::size_t>(rank.rank) % 16;
              ASSERT_OK(
                  rank.prepare_reduce_check(rank.work({type, op, Values::whole, id},
                                                      bytes / element_bytes(type), in_place, own, offset, id),
                                            adding()));
            });
          }
        }
      }
    }
  }
  group.expect_clean(calls);
}

// A sum that was not put to rest in time, or a line that was overwritten, shows when sizes and protocols
// change with every call.
TEST_P(LinesGpu, TurnsWithAllOtherProtocols) {
  Group group(GetParam(), adding_options(), kBufferBytes);
  ASSERT_TRUE(group.ok());
  const auto calls = static_cast<std::uint32_t>(scaled(2000, 60));
  group.run([&](Rank& rank) {
    for (std::uint32_t i = 0; i < calls; ++i) {
      const DataType type = kAdded[mixed(i, 1, 0) % std::size(kAdded)];
      const std::uint64_t most = mixed(i, 2, 0) % 8 == 0 ? 1u << 20 : 20'000;
      const std::uint64_t count = 1 + mixed(i, 3, 0) % (most / element_bytes(type));
      runtime::CallOptions options = adding();
      const std::uint32_t choice = mixed(i, 4, 0) % 8;
      if (choice < 4) {
        options.algorithm = Algorithm::one_shot;
        options.protocol = group.protocols()[choice];
      } else if (choice == 4) {
        options.algorithm = Algorithm::two_shot;
      }
      ASSERT_OK(rank.prepare_reduce_check(
          rank.work({type, ReduceOp::sum, Values::whole, i}, count, i % 3 == 0, 0, 0, i), options));
      group.keep_pace(i);
    }
  });
  group.expect_clean(calls, [](std::uint32_t i) { return "call " + std::to_string(i); });
}

TEST_P(LinesGpu, ReplaysOfBoth) {
  Group group(GetParam(), adding_options(), kBufferBytes);
  ASSERT_TRUE(group.ok());
  const int replays = scaled(200, 5);
  constexpr std::uint32_t kChain = 5;
  group.run([&](Rank& rank) {
    const Graph graph(rank, [&]() -> Status {
      for (std::uint32_t i = 0; i < kChain; ++i) {
        runtime::CallOptions options = adding();
        if (i % 2 == 1) {
          options.algorithm = Algorithm::one_shot;
          options.protocol = Protocol::ll128;
        }
        NL_TRY(rank.prepare_reduce_check(
            rank.work({kAdded[i % 3], ReduceOp::sum, Values::whole, i}, 5000 + 777 * i, i % 2 == 0, 0, 0, i),
            options));
      }
      return {};
    });
    ASSERT_TRUE(graph.ok());
    group.meet();
    for (int i = 0; i < replays; ++i) {
      ASSERT_CUDA(graph.launch());
      group.keep_pace(static_cast<std::uint64_t>(i));
    }
  });
  group.expect_clean(static_cast<std::uint64_t>(replays) * kChain);
}

// Numbers of all magnitudes: whatever the order of adding, all ranks have the owner's bits.
TEST_P(LinesGpu, AllRanksHaveTheSameBitsOfASumInAnyOrder) {
  Group group(GetParam(), adding_options(), kBufferBytes);
  ASSERT_TRUE(group.ok());
  for (const DataType type : kAdded) {
    constexpr std::uint64_t kCount = 20'000;
    std::vector<std::vector<char>> results(static_cast<std::size_t>(group.nranks()));
    group.run([&](Rank& rank) {
      const Work work = rank.work({type, ReduceOp::sum, Values::general, 9}, kCount, false);
      ASSERT_CUDA(prepare(work, rank.stream));
      ASSERT_OK(rank.all_reduce(work, adding()));
      ASSERT_CUDA(cudaStreamSynchronize(rank.stream));
      auto& bits = results[static_cast<std::size_t>(rank.rank)];
      bits.resize(kCount * element_bytes(type));
      ASSERT_CUDA(cudaMemcpy(bits.data(), work.recv, bits.size(), cudaMemcpyDeviceToHost));
      EXPECT_OK(rank.comm->status());
    });
    for (const auto& bits : results) EXPECT_EQ(bits, results[0]) << name_of(type);
  }
}

TEST_P(LinesGpu, WhatAddsNeedsPermission) {
  Group group(GetParam(), test_options(), kBufferBytes);
  ASSERT_TRUE(group.ok());
  const auto refused = group[0].comm->explain_all_reduce(1 << 20, DataType::f32, ReduceOp::sum, adding());
  EXPECT_EQ(refused.status().code(), Code::invalid_argument);
  EXPECT_THAT(refused.status().text(), HasSubstr("deterministic"));
}

INSTANTIATE_TEST_SUITE_P(TwoGpus, LinesGpu, testing::ValuesIn(setups(2, {2})), setup_name);

// Ranks of one GPU have none, whoever asks.
TEST(LineTestGpu, OneGpuIsRefused) {
  for (const std::uint32_t lines : {0u, 64u}) {
    runtime::Options options = adding_options();
    options.lines = lines;
    Group group({Memory::cuda_vmm, 1, 2}, options, kBufferBytes);
    ASSERT_TRUE(group.ok());
    EXPECT_EQ(group[0].comm->lines().path, PathType::same_gpu);
    EXPECT_EQ(group[0].comm->lines().stores, LineVerdict::not_run);
    runtime::CallOptions how;
    how.protocol = Protocol::ll128;
    for (const runtime::CallOptions& one : {how, adding()}) {
      group.run([&](Rank& rank) {
        const Status told = rank.comm->explain_all_reduce(1000, DataType::f32, ReduceOp::sum, one).status();
        EXPECT_FALSE(told.ok());
        EXPECT_THAT(told.text(), HasSubstr("lines"));
        EXPECT_EQ(
            rank.comm->all_reduce(rank.send, rank.recv, 1000, DataType::f32, ReduceOp::sum, rank.stream, one)
                .text(),
            told.text());
      });
    }
  }
}

class LineTestTwoGpus : public testing::TestWithParam<Setup> {};

// 10 million lines from each neighbour, none torn; then integers of the middle sizes go by them.
TEST_P(LineTestTwoGpus, FindsLinesWhole) {
  runtime::Options options = test_options();
  options.lines = 0;
  options.deterministic = false;
  options.test_lines = probe::kTestLines;
  Group group(GetParam(), options, kBufferBytes);
  ASSERT_TRUE(group.ok());
  const probe::LineReport report = group[0].comm->lines();
  ASSERT_EQ(report.path, PathType::nvl) << describe(report);
  EXPECT_EQ(report.stores, LineVerdict::whole) << describe(report);
  EXPECT_EQ(report.adds, LineVerdict::whole) << describe(report);
  EXPECT_GE(report.of_stores.lines, 20'000'000u);
  EXPECT_GE(report.of_adds.lines, 20'000'000u);
  EXPECT_EQ(report.of_stores.torn + report.of_adds.torn, 0u);
  EXPECT_EQ(group[1].comm->lines().of_stores.lines, report.of_stores.lines) << "the ranks differ";
  runtime::CallOptions how;
  how.protocol = Protocol::ll128;
  EXPECT_OK(group[0].comm->explain_all_reduce(16'384, DataType::i32, ReduceOp::sum, how).status());
  group.run([&](Rank& rank) {
    for (std::uint32_t i = 0; i < 20; ++i)
      ASSERT_OK(rank.prepare_reduce_check(
          rank.work({DataType::i32, ReduceOp::sum, Values::general, i}, 10'000 + i * 1001, false), how));
  });
  group.expect_clean(20);
}

// A warp that has fallen apart at every line is slow, and right.
TEST_P(LineTestTwoGpus, FindsLinesOfWarpsInPiecesWhole) {
  runtime::Options options = test_options();
  options.lines = 0;
  options.deterministic = false;
  options.test_lines = probe::kTestLines;
  options.line_way = probe::LineWay::in_pieces;
  Group group(GetParam(), options, kBufferBytes);
  ASSERT_TRUE(group.ok());
  const probe::LineReport report = group[0].comm->lines();
  EXPECT_GE(report.of_stores.lines, 1'000'000u) << describe(report);
  EXPECT_GE(report.of_adds.lines, 1'000'000u) << describe(report);
  EXPECT_EQ(report.of_stores.torn + report.of_adds.torn, 0u) << describe(report);
}

// The test must be able to fail: where the half with the word goes first, some lines come in pieces.
TEST_P(LineTestTwoGpus, FindsTornLines) {
  runtime::Options options = test_options();
  options.lines = 0;
  options.deterministic = false;
  options.test_lines = probe::kTestLines;
  options.line_way = probe::LineWay::torn;
  Group group(GetParam(), options, kBufferBytes);
  ASSERT_TRUE(group.ok());
  const probe::LineReport report = group[0].comm->lines();
  EXPECT_EQ(report.stores, LineVerdict::torn) << describe(report);
  EXPECT_GT(report.of_stores.torn, 0u);
  runtime::CallOptions forced;
  forced.protocol = Protocol::ll128;
  EXPECT_EQ(group[0].comm->explain_all_reduce(16'384, DataType::i32, ReduceOp::sum, forced).status().code(),
            Code::unsupported);
  // What the test left behind does not disturb what comes after.
  group.run([&](Rank& rank) {
    for (std::uint32_t i = 0; i < 20; ++i) {
      runtime::CallOptions how;
      how.protocol = group.protocols()[i % std::size(group.protocols())];
      ASSERT_OK(rank.prepare_reduce_check(
          rank.work({DataType::f32, ReduceOp::sum, Values::general, i}, 1000 + i * 1001, false), how));
    }
  });
  group.expect_clean(20);
}

INSTANTIATE_TEST_SUITE_P(TwoGpus, LineTestTwoGpus, testing::ValuesIn(setups(2, {2})), setup_name);

}  // namespace
}  // namespace nearlight::test
