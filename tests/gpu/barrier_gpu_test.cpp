// The barrier between ranks on GPUs.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <thread>
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

// One rank is late, in turn; after the barrier every rank finds what its neighbour wrote into its own buffer
// before it, with calls by packets in between, whose banks the barrier's epochs move on.
TEST_P(BarrierGpu, OrdersPlainAccesses) {
  Group group(GetParam(), test_options(), kBufferBytes);
  ASSERT_TRUE(group.ok());
  const auto rounds = static_cast<std::uint32_t>(scaled(50, 3));
  constexpr std::uint64_t kCount = 512;
  std::vector<void*> buffers(static_cast<std::size_t>(group.nranks()));
  group.run([&](Rank& rank) {
    const Work probe = rank.work({DataType::i32, ReduceOp::sum, Values::general, 0}, kCount, false);
    buffers[static_cast<std::size_t>(rank.rank)] = const_cast<void*>(probe.send);
  });
  group.run([&](Rank& rank) {
    const auto n = static_cast<std::size_t>(group.nranks());
    std::vector<std::uint32_t> seen(kCount);
    for (std::uint32_t round = 1; round <= rounds; ++round) {
      ASSERT_CUDA(cudaMemsetAsync(buffers[static_cast<std::size_t>(rank.rank)], static_cast<int>(round % 128),
                                  4 * kCount, rank.stream));
      if (round % n == static_cast<std::size_t>(rank.rank)) {
        ASSERT_CUDA(cudaStreamSynchronize(rank.stream));
        std::this_thread::sleep_for(std::chrono::microseconds(300));
      }
      ASSERT_OK(rank.comm->barrier(rank.stream));
      const void* const next = buffers[(static_cast<std::size_t>(rank.rank) + 1) % n];
      ASSERT_CUDA(cudaMemcpyAsync(seen.data(), next, 4 * kCount, cudaMemcpyDefault, rank.stream));
      ASSERT_OK(rank.comm->barrier(rank.stream));
      CallOptions options;
      options.protocol = Protocol::sentinel;
      ASSERT_OK(rank.prepare_reduce_check(
          rank.work({DataType::f32, ReduceOp::sum, Values::general, round}, kCount, false, 8192), options));
      ASSERT_CUDA(cudaStreamSynchronize(rank.stream));
      const std::uint32_t expected = round % 128 * 0x01010101u;
      for (const std::uint32_t value : seen) ASSERT_EQ(value, expected) << "round " << round;
    }
  });
  group.expect_clean(rounds);
}

INSTANTIATE_TEST_SUITE_P(OneGpu, BarrierGpu, testing::ValuesIn(some_on_one_gpu()), setup_name);
INSTANTIATE_TEST_SUITE_P(TwoGpus, BarrierGpu, testing::ValuesIn(some_on_two_gpus()), setup_name);

}  // namespace
}  // namespace nearlight::test
