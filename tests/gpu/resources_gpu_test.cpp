// What a communicator takes it gives back, also when its creation fails.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <thread>
#include <vector>

#include "bootstrap/in_process.hpp"
#include "runtime/create.hpp"
#include "tests/gpu/ranks.hpp"
#include "tests/support/gpu_support.hpp"

namespace nearlight::test {
namespace {

using testing::HasSubstr;

constexpr std::size_t kBufferBytes = std::size_t{1} << 20;

// Of all GPUs of the setup.
std::vector<std::size_t> free_bytes(int gpus) {
  std::vector<std::size_t> all;
  for (int device = 0; device < gpus; ++device) {
    std::size_t free = 0, total = 0;
    EXPECT_CUDA(cudaSetDevice(device));
    EXPECT_CUDA(cudaDeviceSynchronize());
    EXPECT_CUDA(cudaMemGetInfo(&free, &total));
    all.push_back(free);
  }
  return all;
}

// The same after many cycles as after a few: the first ones fill caches of the driver.
void expect_no_growth(int gpus, const std::function<void()>& cycle) {
  for (int i = 0; i < 3; ++i) cycle();
  const auto before = free_bytes(gpus);
  const int cycles = scaled(20, 3);
  for (int i = 0; i < cycles; ++i) cycle();
  EXPECT_EQ(free_bytes(gpus), before) << "free bytes of each GPU after " << cycles << " cycles, and before";
}

void use_and_destroy(int gpus) {
  Group group({Memory::cuda_vmm, gpus, 3}, test_options(), kBufferBytes);
  ASSERT_TRUE(group.ok());
  group.run([&](Rank& rank) {
    const Work work = rank.work({DataType::f32, ReduceOp::sum, Values::general, 1}, 1000, false);
    const Graph graph(rank, [&] { return rank.prepare_reduce_check(work); });
    ASSERT_TRUE(graph.ok());
    group.meet();
    ASSERT_CUDA(graph.launch());
    ASSERT_CUDA(cudaStreamSynchronize(rank.stream));
  });
  group.expect_clean(1);
}

void fail_to_create(int gpus, int spoiled_rank, std::uint32_t slots, std::uint32_t regions,
                    std::uint32_t chunk_bytes, Code code) {
  std::vector<std::thread> threads;
  auto exchanges = bootstrap::make_in_process_group(2);
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      runtime::Options options = test_options();
      options.slots = slots;
      options.regions = regions;
      options.chunk_bytes = chunk_bytes;
      const int device = rank == spoiled_rank ? 99 : rank % gpus;
      const auto created =
          runtime::create_cuda_local(std::move(exchanges[static_cast<std::size_t>(rank)]), device, options);
      EXPECT_EQ(created.status().code(), code) << created.status().to_string();
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_CUDA(cudaGetLastError());
}

TEST(ResourcesGpu, CyclesOfUse) {
  expect_no_growth(1, [] { use_and_destroy(1); });
}
TEST(ResourcesGpu, FailedCreations) {
  expect_no_growth(1, [] {
    fail_to_create(1, 1, 0, 0, 0, Code::invalid_argument);
    // Hundreds of GB a rank: more than there is.
    fail_to_create(1, -1, 1u << 20, 1024, 64u << 20, Code::cuda_error);
  });
}
TEST(ResourcesGpuTwoGpus, CyclesOfUse) {
  expect_no_growth(2, [] { use_and_destroy(2); });
}
TEST(ResourcesGpuTwoGpus, FailedCreations) {
  expect_no_growth(2, [] {
    fail_to_create(2, 1, 0, 0, 0, Code::invalid_argument);
    fail_to_create(2, -1, 1u << 20, 1024, 64u << 20, Code::cuda_error);
  });
}

// scratch_bytes() is what a rank provides: within one unit of the driver of what the GPU really loses.
TEST(ResourcesGpu, ScratchBytesAreTrue) {
  use_and_destroy(1);
  const std::size_t before = free_bytes(1)[0];
  auto created = create_communicators({Memory::cuda_vmm, 1, 2}, test_options());
  std::size_t promised = 0;
  for (auto& one : created) {
    ASSERT_OK(one.status());
    promised += one.value()->scratch_bytes();
  }
  const std::size_t taken = before - free_bytes(1)[0];
  // Units of 2 MiB, and what earlier communicators had left to be freed.
  EXPECT_GE(taken + (std::size_t{4} << 20), promised);
  EXPECT_LE(taken, promised + (std::size_t{16} << 20));
}

}  // namespace
}  // namespace nearlight::test
