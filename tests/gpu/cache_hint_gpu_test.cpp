// The constant that accesses name to be kept in L2 is what the GPU's own instruction makes.
#include <gtest/gtest.h>

#include <cstdint>

#include "tests/gpu/cache_hint.hpp"
#include "tests/support/gpu_support.hpp"

namespace nearlight::test {
namespace {

TEST(CacheHintGpu, IsWhatTheGpuMakesOfIt) {
  std::uint64_t* device = nullptr;
  std::uint64_t words[2] = {};
  ASSERT_CUDA(cudaMalloc(reinterpret_cast<void**>(&device), sizeof words));
  EXPECT_CUDA(read_keep_policy(device));
  EXPECT_CUDA(cudaMemcpy(words, device, sizeof words, cudaMemcpyDeviceToHost));
  EXPECT_CUDA(cudaFree(device));
  EXPECT_EQ(words[0], words[1]);
  EXPECT_NE(words[1], 0u);
}

}  // namespace
}  // namespace nearlight::test
