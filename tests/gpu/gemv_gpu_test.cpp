// Products between ranks on GPUs, with their AllReduce or with an AllGather in front.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "tests/gpu/one_way.hpp"
#include "tests/support/gemv.hpp"

namespace nearlight::test {
namespace {

using runtime::CallOptions;
using runtime::GemvCall;
using Buffers = DeviceBuffers<GemvProblem>;

// `number` chooses the type and what the values are, so that a list of shapes sees all of them.
GemvProblem problem_of(std::size_t tokens, std::size_t in, std::size_t out, std::uint64_t number) {
  GemvProblem problem;
  problem.tokens = tokens;
  problem.in = in;
  problem.out = out;
  problem.seed = number + 1;
  problem.type = number % 2 == 0 ? DataType::bf16 : DataType::f16;
  problem.real = number % 3 == 2;
  problem.uneven = number % 4 == 1;
  problem.special = number % 5 == 3;
  return problem;
}

class GemvGpu : public testing::TestWithParam<Setup> {};

TEST_P(GemvGpu, EveryNumberOfTokens) {
  Group group(GetParam(), test_options(), kOneWayBufferBytes);
  ASSERT_TRUE(group.ok());
  std::vector<GemvProblem> problems;
  for (std::size_t tokens = 1; tokens <= 16; ++tokens) {
    problems.push_back(problem_of(tokens, 1024, 512, tokens));
    problems.push_back(problem_of(tokens, 264, 72, tokens + 1));
  }
  if (test_scale() < 1) problems.resize(6);
  run_all(group, problems);
}

// From one vector of elements a row and one tile, over what fills no lot of loads, to several lots a warp.
TEST_P(GemvGpu, OddSizes) {
  Group group(GetParam(), test_options(), kOneWayBufferBytes);
  ASSERT_TRUE(group.ok());
  std::vector<GemvProblem> problems;
  std::uint64_t number = 0;
  for (const std::size_t in : {8u, 24u, 40u, 504u, 512u, 520u, 1032u, 3584u, 4104u, 14336u}) {
    for (const std::size_t out : {8u, 16u, 1048u})
      problems.push_back(
          problem_of(number % 16 + 1, in, in > 4000 ? std::min(out, std::size_t{136}) : out, number)),
          ++number;
  }
  if (test_scale() < 1) problems.resize(7);
  run_all(group, problems);
}

// Sizes of models, the whole matrix. Sixteen tokens of 16384 elements do not fit the shared memory of a CTA.
TEST_P(GemvGpu, SizesOfModels) {
  Group group(GetParam(), test_options(), kOneWayBufferBytes);
  ASSERT_TRUE(group.ok());
  std::vector<GemvProblem> problems = {problem_of(1, 4096, 8192, 0), problem_of(16, 16384, 256, 1)};
  // The CPU makes every matrix: of two ranks' some hundred MB.
  if (test_scale() >= 1 && GetParam().ranks <= 2) {
    problems.push_back(problem_of(8, 4096, 8192, 2));
    problems.push_back(problem_of(16, 4096, 8192, 4));
    problems.push_back(problem_of(1, 14336, 8192, 6));
    problems.push_back(problem_of(5, 1024, 8192, 5));
    problems.push_back(problem_of(9, 65536, 64, 0));
    problems.push_back(problem_of(1, 512, 128256, 2));
  }
  run_all(group, problems);
}

// The matrix's columns are all ranks' together; packets of a region for a part of them, and for all.
TEST_P(GemvGpu, GatheredTokens) {
  for (const std::uint32_t packets : {0u, 32u}) {
    runtime::Options options = test_options();
    options.packets = packets;
    Group group(GetParam(), options, kOneWayBufferBytes);
    ASSERT_TRUE(group.ok());
    const auto nranks = static_cast<std::size_t>(group.nranks());
    std::vector<GemvProblem> problems;
    std::uint64_t number = 0;
    for (const std::size_t tokens : {1u, 2u, 7u, 8u, 9u, 16u}) {
      for (const std::size_t in : {8u, 40u, 264u, 512u})
        problems.push_back(problem_of(tokens, in, number % 2 == 0 ? 1048 : 72, number)), ++number;
    }
    if (test_scale() < 1) problems.resize(5);
    problems.push_back(problem_of(1, 4096 / nranks / 8 * 8, 8192, 0));
    for (GemvProblem& problem : problems) problem.gathers = true;
    run_all(group, problems);
    if (packets != 0) continue;
    // Too much for a CTA: refused by all.
    GemvProblem large = problem_of(16, 8192 / nranks / 8 * 8, 64, 0);
    large.gathers = true;
    large.nranks = group.nranks();
    const auto route = group[0].comm->explain_gemv(large.call(0));
    EXPECT_EQ(route.status().code(), Code::unsupported);
    EXPECT_NE(route.status().text().find("tokens"), std::string::npos) << route.status().text();
  }
}

// Tiles that the packets of a region do not take at once go in rounds.
TEST_P(GemvGpu, FewPackets) {
  for (const std::uint32_t packets : {32u, 96u}) {
    runtime::Options options = test_options();
    options.packets = packets;
    Group group(GetParam(), options, kOneWayBufferBytes);
    ASSERT_TRUE(group.ok());
    run_all<GemvProblem>(group, {problem_of(1, 512, 4096, 0), problem_of(3, 264, 8192, 1),
                                 problem_of(16, 1024, 2048, 2), problem_of(7, 1032, 4104, 3)});
  }
}

TEST_P(GemvGpu, EveryGrid) {
  Group group(GetParam(), test_options(), kOneWayBufferBytes);
  ASSERT_TRUE(group.ok());
  std::uint64_t number = 0;
  for (const std::uint32_t grid : {1u, 2u, 3u, 7u, 16u}) {
    CallOptions options;
    options.grid = grid;
    const GemvProblem shape = problem_of(1, 512, 136, 0);
    if (!group[0].comm->explain_gemv(shape.call(0), options).ok()) continue;  // more CTAs than regions
    run_all<GemvProblem>(group, {problem_of(1, 512, 136, number), problem_of(9, 2056, 264, number + 1)},
                         options);
    number += 2;
  }
  EXPECT_GE(number, 2u);
}

// Across the wrap of the epochs.
TEST_P(GemvGpu, AcrossTheWrap) {
  runtime::Options options = test_options();
  options.initial_epoch = 0xfffffffau;
  Group group(GetParam(), options, kOneWayBufferBytes);
  ASSERT_TRUE(group.ok());
  std::vector<GemvProblem> problems;
  for (std::uint64_t number = 0; number < 12; ++number)
    problems.push_back(problem_of(number % 3 + 1, 512, 1024, number));
  run_all(group, problems);
}

// Graphs of calls of all sizes, with all-reduces between some.
TEST_P(GemvGpu, Graphs) {
  Group group(GetParam(), test_options(), kOneWayBufferBytes);
  ASSERT_TRUE(group.ok());
  std::vector<GemvProblem> problems;
  for (const auto& [tokens, in, out] : {std::array<std::size_t, 3>{1, 4096, 2048},
                                        {16, 1024, 1024},
                                        {1, 512, 8},
                                        {4, 264, 4104},
                                        {8, 14336, 64}}) {
    problems.push_back(problem_of(tokens, in, out, problems.size()));
    problems.back().gathers = in == 264;
  }
  replay_all(group, problems, [](std::size_t i) { return i % 2 != 0; });
}

// One call's output is the next one's input, and a matrix that a broadcast has just brought: the kernel
// begins to fetch before that has ended, and must not read before.
TEST_P(GemvGpu, WhatTheKernelBeforeWrites) {
  Group group(GetParam(), test_options(), kOneWayBufferBytes);
  ASSERT_TRUE(group.ok());
  Bytes first;
  group.run([&](Rank& rank) {
    // Equal on all ranks, so that a broadcast of rank 0's matrix is what all have.
    GemvProblem problem = problem_of(2, 512, 512, 0);
    problem.nranks = rank.nranks;
    Rank as_first{};
    as_first.rank = 0;
    as_first.stream = rank.stream;
    const auto good = std::make_unique<Buffers>(problem, as_first),
               spoilt = std::make_unique<Buffers>(problem, as_first);
    GemvCall call = good->call();
    void* const matrix = const_cast<void*>(spoilt->call().weight);
    call.weight = matrix;
    for (int i = 0; i < scaled(50, 3); ++i) {
      EXPECT_CUDA(cudaMemsetAsync(matrix, 0xff, problem.out * problem.in * 2, rank.stream));
      group.meet();
      runtime::CollectiveCall broadcast;
      broadcast.collective = Collective::broadcast;
      broadcast.send = good->call().weight;
      broadcast.recv = matrix;
      broadcast.count = problem.out * problem.in;
      broadcast.type = problem.type;
      EXPECT_OK(rank.comm->collective(broadcast, rank.stream));
      EXPECT_OK(rank.comm->gemv(call, rank.stream));
      EXPECT_CUDA(cudaStreamSynchronize(rank.stream));
      group.meet();
      const Bytes result = good->results()[0];
      if (rank.rank == 0 && i == 0) first = result;
      group.meet();
      // Nothing of the NaNs is in it, and all times and ranks are alike.
      EXPECT_TRUE(result == first) << "time " << i << ", rank " << rank.rank;
      for (std::size_t at = 0; at < result.size(); at += 2) {
        std::uint16_t bits;
        std::memcpy(&bits, result.data() + at, 2);
        ASSERT_NE(bits & 0x7fff, 0x7fff) << at / 2;
      }
      group.meet();
    }
  });
}

TEST_P(GemvGpu, TheSameBitsEveryTime) {
  Group group(GetParam(), test_options(), kOneWayBufferBytes);
  ASSERT_TRUE(group.ok());
  expect_the_same_bits_every_time<GemvProblem>(group,
                                               {problem_of(1, 4096, 1024, 2), problem_of(16, 4096, 1024, 2)});
}

// In one round, and in several (of 4 tiles, where a CTA has 8 at least); and of what is gathered.
TEST_P(GemvGpu, ARankThatDoesNotCome) {
  expect_an_absent_rank_to_be_named(GetParam(), problem_of(1, 512, 1024, 0));
  expect_an_absent_rank_to_be_named(GetParam(), problem_of(4, 512, 8192, 0), 32);
  GemvProblem gathering = problem_of(1, 512, 2048, 0);
  gathering.gathers = true;
  expect_an_absent_rank_to_be_named(GetParam(), gathering);
  expect_an_absent_rank_to_be_named(GetParam(), gathering, 32);
}

// One rank alone multiplies.
TEST(GemvGpuAlone, OneRank) {
  Group group({Memory::cuda_vmm, 1, 1}, test_options(), kOneWayBufferBytes);
  ASSERT_TRUE(group.ok());
  run_all<GemvProblem>(group,
                       {problem_of(1, 4096, 8192, 0), problem_of(16, 4096, 1032, 1), problem_of(5, 264, 8, 2),
                        problem_of(8, 14336, 520, 3), problem_of(16, 16384, 72, 5)});
}

INSTANTIATE_TEST_SUITE_P(OneGpu, GemvGpu, testing::ValuesIn(all_on_one_gpu()), setup_name);
INSTANTIATE_TEST_SUITE_P(TwoGpus, GemvGpu, testing::ValuesIn(some_on_two_gpus()), setup_name);

}  // namespace
}  // namespace nearlight::test
