// GPU ranks that come back after a failure, go on without some, or move to another path.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "runtime/communicator.hpp"
#include "tests/gpu/ranks.hpp"
#include "tests/gpu/setups.hpp"
#include "tests/support/gpu_support.hpp"

namespace nearlight::test {
namespace {

using route::Protocol;
using runtime::CallOptions;
using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::HasSubstr;

constexpr std::size_t kBufferBytes = std::size_t{1} << 20;
constexpr int kAbsent = 1;

runtime::Options short_options() {
  runtime::Options options = test_options();
  options.timeout = patient(milliseconds(500));  // the calls that must be right have it, too
  return options;
}

// Of all protocols, small and of several rounds.
constexpr std::uint64_t kCounts[] = {1, 20, 4099, 100'003};
constexpr Protocol kEveryGpus[] = {Protocol::ll, Protocol::simple, Protocol::sentinel};
constexpr int kChecks = 12;
void reduce_and_check(Rank& rank, std::uint64_t seed) {
  for (const Protocol protocol : kEveryGpus) {
    for (const std::uint64_t count : kCounts) {
      CallOptions how;
      how.protocol = protocol;
      ASSERT_OK(rank.prepare_reduce_check(
          rank.work({DataType::f32, ReduceOp::sum, Values::general, seed}, count, false), how));
    }
  }
}

class ResetGpu : public testing::TestWithParam<Setup> {};

// After the time-out a plain kernel runs; after the reset calls are right, and so is a graph of before.
TEST_P(ResetGpu, BringsRightResultsBackAfterATimeout) {
  Group group(GetParam(), short_options(), kBufferBytes);
  ASSERT_TRUE(group.ok());
  std::vector<std::unique_ptr<Graph>> graphs(static_cast<std::size_t>(group.nranks()));
  const Pattern pattern{DataType::bf16, ReduceOp::sum, Values::general, 3};
  group.run([&](Rank& rank) {
    graphs[static_cast<std::size_t>(rank.rank)] = std::make_unique<Graph>(rank, [&]() -> Status {
      for (int i = 0; i < 3; ++i) NL_TRY(rank.prepare_reduce_check(rank.work(pattern, 9001, false)));
      return {};
    });
  });
  for (const auto& graph : graphs) ASSERT_TRUE(graph->ok());
  for (int time = 0; time < scaled(6, 2); ++time) {
    SCOPED_TRACE(time);
    const Protocol protocol = kEveryGpus[time % 3];
    group.run([&](Rank& rank) {
      const Work work =
          rank.work({DataType::f32, ReduceOp::sum, Values::general, 8}, time % 2 == 0 ? 20 : 50'000, false);
      CallOptions how;
      how.protocol = protocol;
      ASSERT_CUDA(prepare(work, rank.stream));
      ASSERT_CUDA(cudaStreamSynchronize(rank.stream));
      group.meet();
      if (rank.rank != kAbsent) {
        ASSERT_OK(rank.all_reduce(work, how));
        ASSERT_CUDA(cudaStreamSynchronize(rank.stream));
        EXPECT_EQ(rank.comm->status().code(), Code::timeout) << rank.comm->status().to_string();
        ASSERT_CUDA(prepare(work, rank.stream));  // a plain kernel
        ASSERT_CUDA(cudaStreamSynchronize(rank.stream));
      }
      group.meet();
      // The late rank sends what nobody waits for any more.
      if (rank.rank == kAbsent && time % 2 == 1) {
        ASSERT_OK(rank.all_reduce(work, how));
      }
      ASSERT_OK(rank.comm->reset());
      EXPECT_OK(rank.comm->status());
      EXPECT_FALSE(rank.comm->fault().has_value());
      reduce_and_check(rank, static_cast<std::uint64_t>(time) + 1);
      ASSERT_CUDA(graphs[static_cast<std::size_t>(rank.rank)]->launch());
    });
    group.expect_clean(kChecks + 3);
  }
}

// Ranks wait in kernels, with a limit far away, when the others have given up: each ends its own.
TEST_P(ResetGpu, EndsKernelsThatWait) {
  runtime::Options options = test_options();
  options.timeout = seconds(300);
  Group group(GetParam(), options, kBufferBytes);
  ASSERT_TRUE(group.ok());
  for (int time = 0; time < 3; ++time) {
    group.run([&](Rank& rank) {
      if (rank.rank != kAbsent) {
        ASSERT_OK(
            rank.all_reduce(rank.work({DataType::f32, ReduceOp::sum, Values::general, 8}, 5000, false)));
      }
      group.meet();
      const auto begin = std::chrono::steady_clock::now();
      ASSERT_OK(rank.comm->reset(patient(seconds(20))));
      EXPECT_LT(std::chrono::steady_clock::now() - begin, patient(seconds(5)));
      reduce_and_check(rank, 5);
    });
    group.expect_clean(kChecks);
  }
}

TEST_P(ResetGpu, OfAHealthyCommunicator) {
  Group group(GetParam(), test_options(), kBufferBytes);
  ASSERT_TRUE(group.ok());
  group.run([&](Rank& rank) {
    for (std::uint64_t time = 0; time < 3; ++time) {
      reduce_and_check(rank, time);
      ASSERT_OK(rank.comm->reset());
      ASSERT_OK(rank.comm->barrier(rank.stream));
    }
  });
  group.expect_clean(3 * kChecks);
}

// NCCL cannot be met through afterwards.
std::vector<Setup> without_nccl(std::vector<Setup> setups) {
  std::erase_if(setups, [](const Setup& setup) { return setup.memory == Memory::nccl_window; });
  return setups;
}
class ResetTwiceGpu : public testing::TestWithParam<Setup> {};

TEST_P(ResetTwiceGpu, NamesWhoDoesNotCome) {
  Group group(GetParam(), test_options(), kBufferBytes);
  ASSERT_TRUE(group.ok());
  group.run([&](Rank& rank) {
    if (rank.rank != kAbsent) {
      const Status status = rank.comm->reset(milliseconds(200));
      EXPECT_EQ(status.code(), Code::timeout);
      EXPECT_THAT(status.text(), HasSubstr("1"));
      EXPECT_FALSE(rank.comm->status().ok());
    }
    group.meet();
    ASSERT_OK(rank.comm->reset());
    reduce_and_check(rank, 1);
  });
  group.expect_clean(kChecks);
}

TEST_P(ResetGpu, PathsMoveAndBack) {
  Group group(GetParam(), test_options(), kBufferBytes);
  ASSERT_TRUE(group.ok());
  std::uint64_t checks = 0;
  for (const char* const path : {"ll", "simple", "sentinel", "two_shot", ""}) {
    group.run([&](Rank& rank) {
      ASSERT_OK(rank.comm->set_path(path));
      for (const std::uint64_t count : kCounts) {
        ASSERT_OK(rank.prepare_reduce_check(
            rank.work({DataType::f32, ReduceOp::sum, Values::general, 4}, count, false)));
      }
      const auto route = rank.comm->explain_all_reduce(4099, DataType::f32, ReduceOp::sum);
      if (std::string(path) == "simple") {
        EXPECT_EQ(route.protocol, Protocol::simple);
      }
    });
    checks += std::size(kCounts);
  }
  group.expect_clean(checks);
}

INSTANTIATE_TEST_SUITE_P(OneGpu, ResetTwiceGpu, testing::ValuesIn(without_nccl(some_on_one_gpu())),
                         setup_name);
INSTANTIATE_TEST_SUITE_P(TwoGpus, ResetTwiceGpu, testing::ValuesIn(without_nccl(some_on_two_gpus())),
                         setup_name);
INSTANTIATE_TEST_SUITE_P(OneGpu, ResetGpu, testing::ValuesIn(some_on_one_gpu()), setup_name);
INSTANTIATE_TEST_SUITE_P(TwoGpus, ResetGpu, testing::ValuesIn(some_on_two_gpus()), setup_name);

// Rank 1 has gone for good.
void shrink_to_all_but_one(int gpus) {
  Group group({Memory::cuda_vmm, gpus, 4}, short_options(), kBufferBytes);
  ASSERT_TRUE(group.ok());
  group.run([&](Rank& rank) {
    if (rank.rank == kAbsent) return;
    const Work work = rank.work({DataType::f32, ReduceOp::sum, Values::general, 8}, 5000, false);
    ASSERT_CUDA(prepare(work, rank.stream));
    ASSERT_OK(rank.all_reduce(work));
    ASSERT_CUDA(cudaStreamSynchronize(rank.stream));
    EXPECT_FALSE(rank.comm->status().ok());
    auto smaller = rank.comm->shrink(std::vector{0, 2, 3});
    ASSERT_OK(smaller.status());
    rank.comm = std::move(*smaller);
    rank.rank = rank.comm->rank();
    rank.nranks = rank.comm->nranks();
    EXPECT_EQ(rank.nranks, 3);
    group.meet();  // the end of the old one waits for the GPU, also for kernels that wait for another rank
    reduce_and_check(rank, 2);
    EXPECT_EQ(rank.wait_and_read().wrong, 0u);
  });
}
TEST(ShrinkGpu, GoesOnWithoutARank) { shrink_to_all_but_one(1); }
TEST(ShrinkGpuTwoGpus, GoesOnWithoutARank) { shrink_to_all_but_one(2); }

// Whoever comes second finds the difference; the kernel of the first, which waits, is ended by it.
TEST(CheckModeGpu, CallsThatDifferAreToldToBothRanks) {
  runtime::Options options = test_options();
  options.timeout = seconds(300);
  options.check = true;
  Group group({Memory::cuda_vmm, 1, 2}, options, kBufferBytes);
  ASSERT_TRUE(group.ok());
  group.run([&](Rank& rank) {
    reduce_and_check(rank, 1);
    ASSERT_CUDA(cudaStreamSynchronize(rank.stream));
    group.meet();
    const Work work =
        rank.work({DataType::f32, ReduceOp::sum, Values::general, 8}, rank.rank == 0 ? 100 : 101, false);
    const Status first = rank.rank == 0 ? rank.all_reduce(work) : Status();
    ASSERT_OK(first);
    group.meet();
    if (rank.rank == 1) {
      EXPECT_EQ(rank.all_reduce(work).code(), Code::invalid_usage);
    }
    group.meet();
    ASSERT_CUDA(cudaStreamSynchronize(rank.stream));
    EXPECT_EQ(rank.comm->status().code(), Code::invalid_usage);
    EXPECT_THAT(rank.comm->status().text(), HasSubstr("count is 100 on rank 0, 101 on rank 1"));
    ASSERT_OK(rank.comm->reset());
    reduce_and_check(rank, 2);
  });
  group.expect_clean(2 * kChecks);
}

// Calls on two streams that nothing joins: in check mode they are put in order, so that results are right.
TEST(CheckModeGpu, TwoStreamsArePutInOrder) {
  runtime::Options options = test_options();
  options.check = true;
  Group group({Memory::cuda_vmm, 1, 2}, options, kBufferBytes, 2);
  ASSERT_TRUE(group.ok());
  group.run([&](Rank& rank) {
    const Work work = rank.work({DataType::f32, ReduceOp::sum, Values::general, 8}, 4099, false);
    ASSERT_CUDA(prepare(work, rank.stream));
    ASSERT_CUDA(cudaStreamSynchronize(rank.stream));
    for (int i = 0; i < scaled(200, 10); ++i)
      ASSERT_OK(rank.all_reduce(work, {}, rank.streams[static_cast<std::size_t>(i % 2)].get()));
    for (const probe::Stream& stream : rank.streams) ASSERT_CUDA(cudaStreamSynchronize(stream.get()));
    ASSERT_CUDA(check(work, rank.report, rank.stream));
    EXPECT_OK(rank.comm->status());
  });
  group.expect_clean(1);
}

}  // namespace
}  // namespace nearlight::test
