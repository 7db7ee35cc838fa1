// GPU ranks whose calls somebody else makes: the switch to the attached NCCL, or to the CPU, and back.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tests/gpu/ranks.hpp"
#include "tests/gpu/setups.hpp"
#include "tests/support/gpu_support.hpp"

namespace nearlight::test {
namespace {

using route::Algorithm;
using std::chrono::milliseconds;
using testing::HasSubstr;

constexpr std::size_t kBufferBytes = std::size_t{6} << 20;
constexpr int kAbsent = 1;

// Whole numbers: the same to the bit, whoever adds them.
Pattern pattern_of(DataType type, std::uint64_t seed) { return {type, ReduceOp::sum, Values::whole, seed}; }

constexpr DataType kTypes[] = {DataType::f32, DataType::bf16, DataType::i32, DataType::i8};
// One element to more than is staged at a time.
constexpr std::uint64_t kCounts[] = {1, 37, 4099, 800'003};
constexpr int kChecks = 16;
void reduce_and_check(Rank& rank, std::uint64_t seed) {
  for (const DataType type : kTypes) {
    for (const std::uint64_t count : kCounts)
      ASSERT_OK(rank.prepare_reduce_check(rank.work(pattern_of(type, seed), count, seed % 2 == 0)));
  }
}

class FallbackGpu : public testing::TestWithParam<Setup> {};

TEST_P(FallbackGpu, MovesEveryCallAndBack) {
  Group group(GetParam(), test_options(), kBufferBytes);
  ASSERT_TRUE(group.ok());
  const Algorithm expected = GetParam().memory == Memory::nccl_window ? Algorithm::nccl : Algorithm::staged;
  for (std::uint64_t round = 0; round < 3; ++round) {
    group.run([&](Rank& rank) {
      ASSERT_OK(rank.comm->set_path("fallback"));
      EXPECT_EQ(rank.comm->explain_all_reduce(10, DataType::bf16, ReduceOp::sum).algorithm, expected);
      reduce_and_check(rank, 3 * round);
      ASSERT_OK(rank.comm->barrier(rank.stream));
      ASSERT_OK(rank.prepare_reduce_check(
          rank.work({DataType::f32, ReduceOp::premul_sum, Values::whole, round}, 1000, false)));
      ASSERT_OK(rank.comm->set_path(""));
      reduce_and_check(rank, 3 * round + 1);
    });
    group.expect_clean(2 * kChecks + 1);
  }
}

// One graph with calls of both kinds, replayed with new data each time.
TEST_P(FallbackGpu, InAGraph) {
  Group group(GetParam(), test_options(), kBufferBytes);
  ASSERT_TRUE(group.ok());
  const int replays = scaled(100, 5);
  group.run([&](Rank& rank) {
    std::uint64_t checks = 0;
    const Graph graph(rank, [&]() -> Status {
      for (const char* const path : {"fallback", "", "fallback"}) {
        NL_TRY(rank.comm->set_path(path));
        for (const std::uint64_t count : {std::uint64_t{5}, std::uint64_t{5000}, std::uint64_t{300'000}}) {
          ++checks;
          Work work = rank.work(pattern_of(DataType::f32, 1000 * checks), count, false, 0, 0,
                                static_cast<std::uint32_t>(checks));
          work.counter = rank.counter;
          NL_TRY(rank.prepare_reduce_check(work));
        }
        NL_TRY(rank.comm->barrier(rank.stream));
      }
      NL_TRY(rank.comm->set_path(""));
      return ok_or("advance", advance(rank.counter, rank.stream));
    });
    group.meet();
    ASSERT_TRUE(graph.ok());
    for (int i = 0; i < replays; ++i) {
      ASSERT_CUDA(graph.launch());
      group.meet();  // some sixty kernels a launch: keep_pace() would let eight ranks fill the queues
      if (i % 4 == 3) {
        ASSERT_CUDA(cudaStreamSynchronize(rank.stream));
      }
    }
    ASSERT_CUDA(cudaStreamSynchronize(rank.stream));
  });
  group.expect_clean(static_cast<std::uint64_t>(9 * replays));
}

// Ranks whose kernels have timed out go on elsewhere, together with one whose have not; a reset brings the
// kernels back.
TEST_P(FallbackGpu, ServesWhenKernelsHaveTimedOut) {
  runtime::Options options = test_options();
  options.timeout = patient(milliseconds(500));
  Group group(GetParam(), options, kBufferBytes);
  ASSERT_TRUE(group.ok());
  group.run([&](Rank& rank) {
    const Work work = rank.work(pattern_of(DataType::f32, 1), 1000, false);
    if (rank.rank != kAbsent) {
      ASSERT_OK(rank.all_reduce(work));
      ASSERT_CUDA(cudaStreamSynchronize(rank.stream));
      EXPECT_EQ(rank.comm->status().code(), Code::timeout);
      EXPECT_EQ(rank.all_reduce(work).code(), Code::timeout);
    }
    group.meet();
    ASSERT_OK(rank.comm->set_path("fallback"));
    reduce_and_check(rank, 5);
    ASSERT_OK(rank.comm->barrier(rank.stream));
    ASSERT_CUDA(cudaStreamSynchronize(rank.stream));
    if (rank.rank != kAbsent) {
      EXPECT_EQ(rank.comm->status().code(), Code::timeout);
    }
    group.meet();
    ASSERT_OK(rank.comm->set_path(""));
    ASSERT_OK(rank.comm->reset());
    EXPECT_OK(rank.comm->status());
    reduce_and_check(rank, 6);
  });
  group.expect_clean(2 * kChecks);
}

INSTANTIATE_TEST_SUITE_P(Ranks, FallbackGpu, testing::ValuesIn(some_on_one_gpu()), setup_name);
INSTANTIATE_TEST_SUITE_P(TwoGpus, FallbackGpu, testing::ValuesIn(some_on_two_gpus()), setup_name);

// By the CPU every wait has its limit, and the rank that is missing its name.
void expect_named(const Setup& setup) {
  runtime::Options options = test_options();
  options.timeout = patient(milliseconds(500));
  Group group(setup, options, kBufferBytes);
  ASSERT_TRUE(group.ok());
  group.run([&](Rank& rank) {
    ASSERT_OK(rank.comm->set_path("staged"));
    if (rank.rank != kAbsent) {
      const auto begin = std::chrono::steady_clock::now();
      ASSERT_OK(rank.all_reduce(rank.work(pattern_of(DataType::f32, 1), 1000, false)));
      ASSERT_CUDA(cudaStreamSynchronize(rank.stream));
      EXPECT_LT(std::chrono::steady_clock::now() - begin, patient(milliseconds(1500)));
      EXPECT_EQ(rank.comm->status().code(), Code::timeout);
      EXPECT_THAT(rank.comm->status().text(), HasSubstr("rank " + std::to_string(kAbsent)));
    }
    group.meet();
    ASSERT_OK(rank.comm->reset());
    reduce_and_check(rank, 7);
  });
  group.expect_clean(kChecks);
}
TEST(StagedGpu, NamesWhoDoesNotCome) { expect_named({Memory::cuda_vmm, 1, 2}); }
TEST(StagedTwoGpus, NamesWhoDoesNotCome) { expect_named({Memory::cuda_vmm, 2, 2}); }

// A graph that is replayed when its communicator is gone asks nobody and waits for nobody.
TEST(StagedGpu, AGraphOutlivesTheCommunicator) {
  Group group({Memory::cuda_vmm, 1, 2}, test_options(), kBufferBytes);
  ASSERT_TRUE(group.ok());
  std::vector<std::unique_ptr<Graph>> graphs(2);
  group.run([&](Rank& rank) {
    ASSERT_OK(rank.comm->set_path("staged"));
    graphs[static_cast<std::size_t>(rank.rank)] = std::make_unique<Graph>(
        rank, [&] { return rank.all_reduce(rank.work(pattern_of(DataType::f32, 1), 1000, false)); });
  });
  for (Rank& rank : group.ranks()) rank.comm.reset();
  Rank& rank = group[0];
  ASSERT_CUDA(cudaSetDevice(rank.device));
  const auto begin = std::chrono::steady_clock::now();
  ASSERT_CUDA(graphs[0]->launch());
  ASSERT_CUDA(cudaStreamSynchronize(rank.stream));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, patient(milliseconds(5000)));
}

// More calls than a stream's queue takes, while a rank is away: the launch that waits for room waits for the
// kernels, which have their limit, so that it returns in time and all calls behind it do nothing.
TEST(FullQueueTwoGpus, LaunchesThatFindNoRoomEndWithTheLimit) {
  runtime::Options options = test_options();
  options.timeout = patient(milliseconds(500));
  Group group({Memory::cuda_vmm, 2, 2}, options, kBufferBytes);
  ASSERT_TRUE(group.ok());
  group.run([&](Rank& rank) {
    if (rank.rank != kAbsent) {
      const Work work = rank.work(pattern_of(DataType::f32, 1), 100, false);
      const auto begin = std::chrono::steady_clock::now();
      for (int call = 0; call < 5000; ++call) {
        if (!rank.all_reduce(work).ok()) break;
      }
      ASSERT_CUDA(cudaStreamSynchronize(rank.stream));
      EXPECT_LT(std::chrono::steady_clock::now() - begin, patient(milliseconds(5000)));
      EXPECT_EQ(rank.comm->status().code(), Code::timeout);
    }
    group.meet();
    ASSERT_OK(rank.comm->reset());
    reduce_and_check(rank, 8);
  });
  group.expect_clean(kChecks);
}

}  // namespace
}  // namespace nearlight::test
