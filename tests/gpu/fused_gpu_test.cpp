// The fused AllReduce between ranks on GPUs.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/gpu/one_way.hpp"
#include "tests/support/fused.hpp"

namespace nearlight::test {
namespace {

using runtime::CallOptions;
using runtime::FusedCall;
using Buffers = DeviceBuffers<FusedProblem>;

// `number` chooses types, so that a list of shapes sees all of them.
FusedProblem problem_of(std::size_t tokens, std::size_t hidden, std::uint64_t number) {
  FusedProblem problem;
  problem.tokens = tokens;
  problem.hidden = hidden;
  problem.seed = number + 1;
  problem.type = number % 2 == 0 ? DataType::bf16 : DataType::f16;
  problem.output_type = number % 3 == 0 ? problem.type : number % 3 == 1 ? DataType::f8e4m3 : DataType::i8;
  problem.residual = number % 5 != 4;
  problem.special = number % 4 == 3;
  if (number % 7 == 6) {
    problem.collective = Collective::all_reduce_bias;
    problem.output_type = problem.type;
  }
  return problem;
}

class FusedGpu : public testing::TestWithParam<Setup> {};

// Those of models from 0.5 to 405 billion parameters, the ends, and one that fills no warp.
constexpr std::size_t kHidden[] = {1024, 1032, 1536, 2048, 2560, 2880,  3072,  3584, 4096,
                                   5120, 5376, 6144, 7168, 8192, 12288, 16376, 16384};

TEST_P(FusedGpu, EveryHiddenSize) {
  Group group(GetParam(), test_options(), kOneWayBufferBytes);
  ASSERT_TRUE(group.ok());
  std::vector<FusedProblem> problems;
  std::uint64_t number = 0;
  for (const std::size_t hidden : kHidden) {
    for (const std::size_t tokens : {1u, 3u}) problems.push_back(problem_of(tokens, hidden, number++));
  }
  if (test_scale() < 1) problems.resize(6);
  run_all(group, problems);
  run_all(group, problems, {}, true);
}

TEST_P(FusedGpu, ManyTokens) {
  Group group(GetParam(), test_options(), kOneWayBufferBytes);
  ASSERT_TRUE(group.ok());
  std::vector<FusedProblem> problems;
  std::uint64_t number = 0;
  for (const std::size_t tokens : {2u, 8u, 32u, 127u}) {
    for (const std::size_t hidden : {8192u, 2880u}) problems.push_back(problem_of(tokens, hidden, number++));
  }
  if (test_scale() < 1) {
    problems.resize(2);
  } else {
    problems.push_back(problem_of(2048, 4096, 0));
    problems.push_back(problem_of(2048, 16384, 1));
  }
  run_all(group, problems);
}

// Every way to cut rows gives the same sums; a norm may differ in its last bit, which check() allows.
TEST_P(FusedGpu, EverySpreadAndGrid) {
  Group group(GetParam(), test_options(), kOneWayBufferBytes);
  ASSERT_TRUE(group.ok());
  std::uint64_t number = 0;
  for (const std::uint32_t spread : {1u, 2u, 4u, 8u}) {
    for (const std::uint32_t grid : {0u, spread, 2 * spread}) {
      CallOptions options;
      options.spread = spread;
      options.grid = grid;
      const FusedProblem shape = problem_of(1, 8192, 0);
      if (!group[0].comm->explain_fused(shape.call(), options).ok()) continue;  // more CTAs than regions
      run_all<FusedProblem>(
          group,
          {problem_of(1, 1024, number), problem_of(2, 8192, number + 1), problem_of(5, 16384, number + 2)},
          options);
      number += 3;
    }
  }
  EXPECT_GE(number, 6u);
}

// A row that the packets of a region do not take at once goes in rounds.
TEST_P(FusedGpu, FewPackets) {
  for (const std::uint32_t packets : {96u, 512u}) {
    runtime::Options options = test_options();
    options.packets = packets;
    Group group(GetParam(), options, kOneWayBufferBytes);
    ASSERT_TRUE(group.ok());
    run_all<FusedProblem>(group, {problem_of(1, 1024, 0), problem_of(3, 8192, 1), problem_of(9, 16384, 3),
                                  problem_of(2, 1032, 6)});
  }
}

// Across the wrap of the epochs.
TEST_P(FusedGpu, AcrossTheWrap) {
  runtime::Options options = test_options();
  options.initial_epoch = 0xfffffffau;
  Group group(GetParam(), options, kOneWayBufferBytes);
  ASSERT_TRUE(group.ok());
  std::vector<FusedProblem> problems;
  for (std::uint64_t number = 0; number < 12; ++number)
    problems.push_back(problem_of(number % 3 + 1, number % 2 == 0 ? 4096 : 8192, number));
  run_all(group, problems);
}

// Graphs of calls of all sizes, with all-reduces between them.
TEST_P(FusedGpu, Graphs) {
  Group group(GetParam(), test_options(), kOneWayBufferBytes);
  ASSERT_TRUE(group.ok());
  std::vector<FusedProblem> problems;
  for (const auto& [tokens, hidden] :
       {std::pair<std::size_t, std::size_t>{1, 8192}, {32, 8192}, {8, 4096}, {1, 1024}, {100, 2048}})
    problems.push_back(problem_of(tokens, hidden, problems.size()));
  replay_all(group, problems, [](std::size_t) { return true; });
}

TEST_P(FusedGpu, TheSameBitsEveryTime) {
  Group group(GetParam(), test_options(), kOneWayBufferBytes);
  ASSERT_TRUE(group.ok());
  expect_the_same_bits_every_time<FusedProblem>(
      group, {problem_of(1, 8192, 0), problem_of(8, 8192, 0), problem_of(70, 8192, 0)});
}

// Of every row, clusters too.
TEST_P(FusedGpu, ARankThatDoesNotCome) {
  for (const std::size_t tokens : {1u, 40u})
    expect_an_absent_rank_to_be_named(GetParam(), problem_of(tokens, 8192, 0));
}

// Plain memory is refused by name, but where the GPU reaches it: there it is as good as any.
TEST_P(FusedGpu, PointersOfTheHostAreNamed) {
  Group group(GetParam(), test_options(), kOneWayBufferBytes);
  ASSERT_TRUE(group.ok());
  group.run([&](Rank& rank) {
    int reachable = 0;
    ASSERT_CUDA(cudaDeviceGetAttribute(&reachable, cudaDevAttrPageableMemoryAccess, rank.device));
    FusedProblem problem = problem_of(1, 1024, 0);
    problem.nranks = rank.nranks;
    const Buffers buffers(problem, rank);
    struct alignas(16) Row {
      std::uint16_t elements[1024];
    };
    const auto weight = std::make_unique<Row>();
    const auto values = problem.weights();
    ASSERT_EQ(values.size(), std::size(weight->elements));
    std::copy(values.begin(), values.end(), weight->elements);
    FusedCall call = buffers.call();
    call.weight = weight->elements;
    group.meet();
    const Status status = rank.comm->fused(call, rank.stream);
    ASSERT_CUDA(cudaStreamSynchronize(rank.stream));
    EXPECT_OK(rank.comm->status());
    group.meet();
    if (reachable == 0) {
      EXPECT_EQ(status.code(), Code::invalid_argument);
      EXPECT_NE(status.text().find("weight"), std::string::npos) << status.to_string();
    } else {
      EXPECT_OK(status);
      const auto results = buffers.results();
      EXPECT_EQ(problem.check(results[0].data(), results[1].data()), "");
    }
    group.meet();  // nobody frees while a kernel of another rank runs
  });
}

// One rank alone adds and normalises.
TEST(FusedGpuAlone, OneRank) {
  Group group({Memory::cuda_vmm, 1, 1}, test_options(), kOneWayBufferBytes);
  ASSERT_TRUE(group.ok());
  run_all<FusedProblem>(group, {problem_of(1, 8192, 0), problem_of(3, 1032, 1), problem_of(100, 4096, 2),
                                problem_of(2, 5120, 6)});
}

INSTANTIATE_TEST_SUITE_P(OneGpu, FusedGpu, testing::ValuesIn(all_on_one_gpu()), setup_name);
INSTANTIATE_TEST_SUITE_P(TwoGpus, FusedGpu, testing::ValuesIn(some_on_two_gpus()), setup_name);

}  // namespace
}  // namespace nearlight::test
