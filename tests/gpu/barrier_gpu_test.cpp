// The barrier between ranks on GPUs.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "tests/gpu/ranks.hpp"
#include "tests/gpu/setups.hpp"
#include "tests/support/gpu_support.hpp"

namespace nearlight::test {
namespace {

using route::Protocol;
using runtime::CallOptions;

constexpr std::size_t kBufferBytes = std::size_t{1} << 20;

class BarrierGpu : public testing::TestWithParam<Setup> {};

// What a rank writes: another pattern each round, as if it were alone.
Work note(void* buffer, std::uint64_t count, std::uint32_t round, std::size_t rank) {
  Work work;
  work.pattern = {DataType::i32, ReduceOp::sum, Values::general, round * 16 + rank};
  work.count = count;
  work.send = work.recv = buffer;
  work.case_id = round;
  return work;
}

// One rank is late, in turn; after the barrier every rank finds what its neighbour wrote into its own buffer
// before it, with calls by packets in between, whose banks the barrier's epochs move on. Kernels alone: a
// copy may wait for all kernels, and those of a barrier wait for it.
TEST_P(BarrierGpu, OrdersPlainAccesses) {
  Group group(GetParam(), test_options(), kBufferBytes);
  ASSERT_TRUE(group.ok());
  const auto rounds = static_cast<std::uint32_t>(scaled(50, 3));
  constexpr std::uint64_t kCount = 512;
  std::vector<void*> buffers(static_cast<std::size_t>(group.nranks()));
  group.run([&](Rank& rank) {
    const Work probe = rank.work({DataType::i32, ReduceOp::sum, Values::general, 0}, kCount, false);
    buffers[static_cast<std::size_t>(rank.rank)] = probe.send;
    for (const Rank& other : group.ranks()) {
      if (other.device == rank.device) continue;
      const cudaError_t enabled = cudaDeviceEnablePeerAccess(other.device, 0);
      if (enabled != cudaErrorPeerAccessAlreadyEnabled) {
        ASSERT_CUDA(enabled);
      }
      (void)cudaGetLastError();
    }
  });
  group.run([&](Rank& rank) {
    const auto n = static_cast<std::size_t>(group.nranks()), own = static_cast<std::size_t>(rank.rank);
    const std::size_t next = (own + 1) % n;
    for (std::uint32_t round = 0; round < rounds; ++round) {
      if (round % n == own) {
        ASSERT_CUDA(hold(300'000, rank.stream));
      }
      ASSERT_CUDA(prepare(note(buffers[own], kCount, round, own), rank.stream));
      ASSERT_OK(rank.comm->barrier(rank.stream));
      ASSERT_CUDA(check(note(buffers[next], kCount, round, next), rank.report, rank.stream));
      ASSERT_OK(rank.comm->barrier(rank.stream));
      CallOptions options;
      options.protocol = Protocol::sentinel;
      ASSERT_OK(rank.prepare_reduce_check(
          rank.work({DataType::f32, ReduceOp::sum, Values::general, round}, kCount, false, 8192), options));
      group.keep_pace(round);
    }
  });
  group.expect_clean(2 * rounds, [](std::uint32_t round) { return "round " + std::to_string(round); });
}

INSTANTIATE_TEST_SUITE_P(OneGpu, BarrierGpu, testing::ValuesIn(some_on_one_gpu()), setup_name);
INSTANTIATE_TEST_SUITE_P(TwoGpus, BarrierGpu, testing::ValuesIn(some_on_two_gpus()), setup_name);

}  // namespace
}  // namespace nearlight::test
