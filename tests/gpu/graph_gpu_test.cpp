// Captures and lifetimes: the first call of all inside a capture, communicators that end before or after
// their graphs, one rank.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

#include "runtime/kernel_loop.hpp"
#include "tests/gpu/ranks.hpp"
#include "tests/gpu/setups.hpp"
#include "tests/support/gpu_support.hpp"

namespace nearlight::test {
namespace {

using route::Protocol;
using runtime::CallOptions;
using Clock = std::chrono::steady_clock;

constexpr std::size_t kBufferBytes = std::size_t{1} << 20;

cudaStreamCaptureMode thread_capture_mode() {
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  EXPECT_CUDA(cudaThreadExchangeStreamCaptureMode(&mode));
  cudaStreamCaptureMode back = mode;
  EXPECT_CUDA(cudaThreadExchangeStreamCaptureMode(&back));
  return mode;
}

class GraphGpu : public testing::TestWithParam<Setup> {};

TEST_P(GraphGpu, TheFirstCallOfAllIsCaptured) {
  for (const cudaStreamCaptureMode mode :
       {cudaStreamCaptureModeGlobal, cudaStreamCaptureModeThreadLocal, cudaStreamCaptureModeRelaxed}) {
    Group group(GetParam(), test_options(), kBufferBytes);
    ASSERT_TRUE(group.ok());
    std::vector<std::unique_ptr<Graph>> graphs(static_cast<std::size_t>(group.nranks()));
    // One rank after the other: in global mode a capture forbids allocations of all threads.
    for (Rank& rank : group.ranks()) {
      ASSERT_CUDA(cudaSetDevice(rank.device));
      const cudaStreamCaptureMode before = thread_capture_mode();
      graphs[static_cast<std::size_t>(rank.rank)] = std::make_unique<Graph>(
          rank,
          [&]() -> Status {
            Work work = rank.work({DataType::bf16, ReduceOp::sum, Values::general, 3}, 5000, false, 2, 6);
            work.counter = rank.counter;
            NL_TRY(rank.prepare_reduce_check(work));
            EXPECT_EQ(thread_capture_mode(), before);
            cudaStreamCaptureStatus capturing = cudaStreamCaptureStatusNone;
            EXPECT_CUDA(cudaStreamIsCapturing(rank.stream, &capturing));
            EXPECT_EQ(capturing, cudaStreamCaptureStatusActive);
            // What cannot run is refused, and the capture goes on.
            EXPECT_EQ(
                rank.comm->all_reduce(nullptr, work.recv, 1, DataType::f32, ReduceOp::sum, rank.stream, {})
                    .code(),
                Code::invalid_argument);
            CallOptions simple;
            simple.protocol = Protocol::simple;
            work.case_id = 1;
            NL_TRY(rank.prepare_reduce_check(work, simple));
            return ok_or("advance", advance(rank.counter, rank.stream));
          },
          mode);
      ASSERT_TRUE(graphs[static_cast<std::size_t>(rank.rank)]->ok());
      EXPECT_EQ(thread_capture_mode(), before);
    }
    group.run([&](Rank& rank) {
      for (int i = 0; i < 3; ++i) ASSERT_CUDA(graphs[static_cast<std::size_t>(rank.rank)]->launch());
    });
    group.expect_clean(6);
    for (const auto& graph : graphs) graph->destroy();
  }
}

// The graph outlives its communicator: replayed, it ends at once and writes nothing.
TEST_P(GraphGpu, AGraphReplayedAfterItsCommunicatorIsGone) {
  Group group(GetParam(), test_options(), kBufferBytes);
  ASSERT_TRUE(group.ok());
  const auto n = static_cast<std::size_t>(group.nranks());
  std::vector<std::unique_ptr<Graph>> graphs(n);
  constexpr std::uint64_t kCount = 5000;
  const Pattern pattern{DataType::f32, ReduceOp::sum, Values::general, 4};
  group.run([&](Rank& rank) {
    auto& graph = graphs[static_cast<std::size_t>(rank.rank)];
    graph = std::make_unique<Graph>(rank, [&]() -> Status {
      for (const Protocol protocol : group.protocols()) {
        CallOptions options;
        options.protocol = protocol;
        for (int i = 0; i < 20; ++i) NL_TRY(rank.all_reduce(rank.work(pattern, kCount, false), options));
      }
      return {};
    });
    ASSERT_TRUE(graph->ok());
    const Work work = rank.work(pattern, kCount, false);
    ASSERT_CUDA(prepare(work, rank.stream));
    ASSERT_CUDA(cudaStreamSynchronize(rank.stream));
    group.meet();
    ASSERT_CUDA(graph->launch());
    ASSERT_CUDA(check(work, rank.report, rank.stream));
  });
  group.expect_clean(1);

  for (Rank& rank : group.ranks()) rank.comm.reset();
  group.run([&](Rank& rank) {
    const Work work = rank.work(pattern, kCount, false);
    ASSERT_CUDA(prepare(work, rank.stream));
    ASSERT_CUDA(cudaStreamSynchronize(rank.stream));
    const auto begin = Clock::now();
    for (int i = 0; i < 5; ++i) ASSERT_CUDA(graphs[static_cast<std::size_t>(rank.rank)]->launch());
    ASSERT_CUDA(cudaStreamSynchronize(rank.stream));
    EXPECT_LT(Clock::now() - begin, patient(std::chrono::seconds(1)));
    ASSERT_CUDA(check_untouched(work, rank.report, rank.stream));
  });
  group.expect_clean(1);
  for (const auto& graph : graphs) graph->destroy();

  // And the GPU is as good as new: another group on it works, after which what the graphs held can be freed.
  Group next(GetParam(), test_options(), kBufferBytes);
  ASSERT_TRUE(next.ok());
  next.run([&](Rank& rank) { ASSERT_OK(rank.prepare_reduce_check(rank.work(pattern, kCount, false))); });
  next.expect_clean(1);
}

// The graph goes first, or is never replayed, or was captured and never instantiated again.
TEST_P(GraphGpu, TheCommunicatorOutlivesItsGraphs) {
  Group group(GetParam(), test_options(), kBufferBytes);
  ASSERT_TRUE(group.ok());
  const Pattern pattern{DataType::bf16, ReduceOp::max, Values::general, 4};
  for (int i = 0; i < 5; ++i) {
    group.run([&](Rank& rank) {
      const Work work = rank.work(pattern, 777, true);
      Graph graph(rank, [&] { return rank.prepare_reduce_check(work); });
      ASSERT_TRUE(graph.ok());
      const Graph never_replayed(rank, [&] { return rank.all_reduce(work); });
      ASSERT_TRUE(never_replayed.ok());
      group.meet();
      ASSERT_CUDA(graph.launch());
      ASSERT_CUDA(cudaStreamSynchronize(rank.stream));
      graph.destroy();
      group.meet();
      ASSERT_OK(rank.prepare_reduce_check(work));
    });
    group.expect_clean(2);
  }
}

// Kernel mode: many operations in one kernel give the same result as one, and a time for each.
TEST_P(GraphGpu, KernelLoop) {
  Group group(GetParam(), test_options(), kBufferBytes);
  ASSERT_TRUE(group.ok());
  constexpr std::uint32_t kSamples = 100;
  // By route, too, also where a single call would take the sentinel, which has no loop.
  for (const std::optional<Protocol>& protocol :
       std::initializer_list<std::optional<Protocol>>{Protocol::ll, Protocol::simple, std::nullopt}) {
    for (const std::uint64_t count : {32u, 5000u}) {
      const std::uint32_t chain = count == 32 ? 2 : 1;
      group.run([&](Rank& rank) {
        CallOptions options;
        options.protocol = protocol;
        const Work work = rank.work({DataType::f32, ReduceOp::sum, Values::general, count}, count, false);
        ASSERT_CUDA(prepare(work, rank.stream));
        ASSERT_CUDA(cudaStreamSynchronize(rank.stream));
        group.meet();
        std::vector<double> op_ns;
        ASSERT_OK(runtime::run_all_reduce_loop(*rank.comm, work.send, work.recv, count, DataType::f32,
                                               ReduceOp::sum, {kSamples, chain}, op_ns, rank.stream,
                                               options));
        ASSERT_EQ(op_ns.size(), kSamples);
        for (const double ns : op_ns) {
          EXPECT_GT(ns, 100.0);
          EXPECT_LT(ns, 1e9);
        }
        ASSERT_CUDA(check(work, rank.report, rank.stream));
        // An ordinary call afterwards, in step with the others.
        ASSERT_OK(rank.prepare_reduce_check(work, options));
      });
      group.expect_clean(2);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(OneGpu, GraphGpu, testing::ValuesIn(some_on_one_gpu()), setup_name);
INSTANTIATE_TEST_SUITE_P(TwoGpus, GraphGpu, testing::ValuesIn(some_on_two_gpus()), setup_name);

// ---- one rank -----------------------------------------------------------------------------------------

// It copies, multiplies with its factor, or does nothing.
TEST(OneRankGpu, CopiesOrDoesNothing) {
  Group group({Memory::cuda_vmm, 1, 1}, test_options(), kBufferBytes);
  ASSERT_TRUE(group.ok());
  Rank& rank = group[0];
  ASSERT_CUDA(cudaSetDevice(rank.device));
  std::uint64_t checks = 0;
  for (const DataType type : kDataTypes) {
    for (const ReduceOp op : kReduceOps) {
      for (const std::uint64_t count : {0u, 1u, 9u, 10u, 1023u, 65537u}) {
        for (const bool in_place : {false, true}) {
          const Work work = rank.work({type, op, Values::general, checks}, count, in_place,
                                      element_bytes(type), 0, static_cast<std::uint32_t>(checks));
          ASSERT_OK(rank.prepare_reduce_check(work));
          ++checks;
        }
      }
    }
  }
  group.expect_clean(checks);
}

TEST(OneRankGpu, IsCapturable) {
  Group group({Memory::cuda_vmm, 1, 1}, test_options(), kBufferBytes);
  ASSERT_TRUE(group.ok());
  Rank& rank = group[0];
  ASSERT_CUDA(cudaSetDevice(rank.device));
  const Graph graph(rank, [&]() -> Status {
    for (const bool in_place : {false, true}) {
      Work work = rank.work({DataType::bf16, ReduceOp::sum, Values::general, 1}, 1023, in_place, 2, 0);
      work.counter = rank.counter;
      NL_TRY(rank.prepare_reduce_check(work));
    }
    return ok_or("advance", advance(rank.counter, rank.stream));
  });
  ASSERT_TRUE(graph.ok());
  for (int i = 0; i < 10; ++i) ASSERT_CUDA(graph.launch());
  group.expect_clean(20);
}

}  // namespace
}  // namespace nearlight::test
