// Programmatic dependent launch on both sides of a collective: the kernel before lets it start and writes the
// input later; the kernel after is resident early and overwrites the input as soon as it may.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <string>

#include "tests/gpu/ranks.hpp"
#include "tests/gpu/setups.hpp"
#include "tests/support/gpu_support.hpp"

namespace nearlight::test {
namespace {

using route::Protocol;
using runtime::CallOptions;

constexpr std::uint64_t kCounts[] = {4, 33, 1024, 4099, 16384};  // f32: 16 B to 64 KiB
constexpr std::size_t kBufferBytes = std::size_t{1} << 20;
constexpr std::uint64_t kLateNs = 20'000;

class DependentLaunchGpu : public testing::TestWithParam<Setup> {};

// Producer, collective, consumer; each lets the next one in at its start.
Status chain(const Rank& rank, const Work& work, Protocol protocol, std::uint64_t late_ns) {
  CallOptions options;
  options.protocol = protocol;
  NL_TRY(ok_or("prepare_late", prepare_late(work, late_ns, rank.stream)));
  NL_TRY(rank.all_reduce(work, options));
  return ok_or("check_and_overwrite", check_and_overwrite(work, rank.report, rank.stream));
}

// Half of the ranks write late, in turn, so that early and late inputs meet.
std::uint64_t lateness(const Rank& rank, std::uint32_t call) {
  return (static_cast<std::uint32_t>(rank.rank) + call) % 2 == 0 ? kLateNs : 0;
}

TEST_P(DependentLaunchGpu, Eager) {
  Group group(GetParam(), test_options(), kBufferBytes);
  ASSERT_TRUE(group.ok());
  const auto rounds = static_cast<std::uint32_t>(scaled(60, 4));
  for (const Protocol protocol : group.protocols()) {
    for (const std::uint64_t count : kCounts) {
      group.run([&](Rank& rank) {
        for (std::uint32_t i = 0; i < rounds; ++i) {
          const Work work =
              rank.work({DataType::f32, ReduceOp::sum, Values::general, i}, count, i % 3 == 2, 4, 0, i);
          ASSERT_OK(chain(rank, work, protocol, lateness(rank, i)));
          group.keep_pace(i);
        }
      });
      group.expect_clean(rounds, [&](std::uint32_t i) {
        return std::to_string(count) + " elements, " + algorithm::name_of(protocol) + ", call " +
               std::to_string(i);
      });
    }
  }
}

TEST_P(DependentLaunchGpu, InAGraph) {
  Group group(GetParam(), test_options(), kBufferBytes);
  ASSERT_TRUE(group.ok());
  const int replays = scaled(50, 3);
  constexpr std::uint32_t kChain = 6;
  for (const Protocol protocol : group.protocols()) {
    for (const std::uint64_t count : kCounts) {
      group.run([&](Rank& rank) {
        const Graph graph(rank, [&]() -> Status {
          for (std::uint32_t i = 0; i < kChain; ++i) {
            Work work = rank.work({DataType::f32, ReduceOp::sum, Values::general, 100 * i}, count, i % 3 == 2,
                                  4, 0, i);
            work.counter = rank.counter;
            NL_TRY(chain(rank, work, protocol, lateness(rank, i)));
          }
          return ok_or("advance_early", advance_early(rank.counter, rank.stream));
        });
        ASSERT_TRUE(graph.ok());
        group.meet();
        for (int i = 0; i < replays; ++i) {
          ASSERT_CUDA(graph.launch());
          group.keep_pace(static_cast<std::uint64_t>(i));
        }
        ASSERT_CUDA(cudaStreamSynchronize(rank.stream));
      });
      group.expect_clean(kChain * static_cast<std::uint64_t>(replays), [&](std::uint32_t i) {
        return std::to_string(count) + " elements, " + algorithm::name_of(protocol) + ", call " +
               std::to_string(i) + " of the graph";
      });
    }
  }
}

// Two collectives in a row, the second one's input being the first one's output: it is resident before that
// is written.
TEST_P(DependentLaunchGpu, OneCollectiveFeedsTheNext) {
  Group group(GetParam(), test_options(), kBufferBytes);
  ASSERT_TRUE(group.ok());
  const auto rounds = static_cast<std::uint32_t>(scaled(40, 4));
  constexpr std::uint64_t kCount = 3000;
  for (const Protocol protocol : {Protocol::ll, Protocol::simple}) {
    CallOptions options;
    options.protocol = protocol;
    group.run([&](Rank& rank) {
      for (std::uint32_t i = 0; i < rounds; ++i) {
        // The largest of the largest is the largest: the second call must change nothing, if it sees the
        // first one's result.
        const Work work =
            rank.work({DataType::i32, ReduceOp::max, Values::general, i}, kCount, false, 0, 0, i);
        ASSERT_CUDA(prepare_late(work, lateness(rank, i), rank.stream));
        ASSERT_OK(rank.all_reduce(work, options));
        ASSERT_OK(rank.comm->all_reduce(work.recv, work.recv, kCount, DataType::i32, ReduceOp::max,
                                        rank.stream, options));
        ASSERT_CUDA(check_and_overwrite(work, rank.report, rank.stream));
        group.keep_pace(i);
      }
    });
    group.expect_clean(rounds);
  }
}

// Where ranks share a GPU the kernel after a call's is not let in before its end: it would take the room that
// the other rank's call, which comes later, needs to end the wait.
TEST(SharedGpu, AKernelThatFillsItWaitsWithoutTakingItsRoom) {
  for (const Protocol protocol : {Protocol::ll, Protocol::simple, Protocol::sentinel}) {
    runtime::Options options = test_options();
    options.early_launch.reset();
    options.timeout = patient(std::chrono::seconds(3));
    Group group({Memory::cuda_vmm, 1, 2}, options, kBufferBytes);
    ASSERT_TRUE(group.ok());
    group.run([&](Rank& rank) {
      CallOptions how;
      how.protocol = protocol;
      for (std::uint32_t i = 0; i < 4; ++i) {
        const Work work = rank.work({DataType::f32, ReduceOp::sum, Values::general, i}, 4096, false, 0, 0, i);
        if (static_cast<std::uint32_t>(rank.rank) == i % 2) {
          ASSERT_CUDA(hold(20'000'000, rank.stream));
        }
        ASSERT_CUDA(prepare(work, rank.stream));
        ASSERT_OK(rank.all_reduce(work, how));
        ASSERT_CUDA(wait_everywhere(rank.stream));
        ASSERT_CUDA(check(work, rank.report, rank.stream));
        ASSERT_CUDA(cudaStreamSynchronize(rank.stream));
        group.meet();
      }
    });
    group.expect_clean(4);
  }
}

// Few ranks on one GPU: these producers and consumers let the next kernel in at their start, so that many of
// them stand on the GPU and wait; those of eight ranks fill it, and a rank's collective finds no room beside
// them.
INSTANTIATE_TEST_SUITE_P(OneGpu, DependentLaunchGpu, testing::ValuesIn(setups(1, {2, 3})), setup_name);
INSTANTIATE_TEST_SUITE_P(TwoGpus, DependentLaunchGpu, testing::ValuesIn(some_on_two_gpus()), setup_name);

}  // namespace
}  // namespace nearlight::test
