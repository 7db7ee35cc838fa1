// What of the GPU's memory can be checked without a GPU.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>

#include "memory/cuda_driver.hpp"
#include "memory/cuda_vmm_heap.hpp"
#include "tests/support/ranks.hpp"

namespace nearlight::test {
namespace {

Deadline patience() { return Deadline::after(std::chrono::seconds(60)); }

int devices() {
  int count = 0;
  if (cudaGetDeviceCount(&count) == cudaSuccess) return count;
  static_cast<void>(cudaGetLastError());
  return 0;
}

TEST(CudaStatus, NamesCallAndText) {
  EXPECT_TRUE(memory::cuda_status(cudaSuccess, "cudaMalloc").ok());
  const Status status = memory::cuda_status(cudaErrorMemoryAllocation, "cudaMalloc");
  EXPECT_EQ(status.code(), Code::cuda_error);
  EXPECT_EQ(status.text(), "cudaMalloc: out of memory (cudaErrorMemoryAllocation)");
}

TEST(CudaStatus, ClearsWhatCudaRemembers) {
  cudaStream_t stream = nullptr;
  const cudaError_t error = cudaStreamCreateWithFlags(&stream, 0xffff);
  ASSERT_NE(error, cudaSuccess);
  EXPECT_FALSE(memory::cuda_status(error, "cudaStreamCreateWithFlags").ok());
  if (devices() > 0) {  // without a driver every look is a new error
    EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
  }
}

TEST(CudaDriver, IsThereOrSaysWhyNot) {
  int version = 0;
  const bool there = cudaDriverGetVersion(&version) == cudaSuccess && version > 0;
  const auto driver = memory::CudaDriver::get();
  EXPECT_EQ(driver.ok(), there) << driver.status().to_string();
  if (!there) {
    EXPECT_EQ(driver.status().code(), Code::unsupported);
    EXPECT_NE(driver.status().text().find("no usable CUDA driver"), std::string::npos)
        << driver.status().to_string();
  }
}

// Threads of one process share a range of addresses; ranks that met pass descriptors.
void expect_refused(Kind kind) {
  const int count = devices();
  EXPECT_EQ("", run_ranks(kind, 3, [count](Exchange& exchange, Problems& problems) {
              // One past the last device where there are some.
              const auto heap = memory::create_cuda_vmm_heap(exchange, count, 1 << 20, patience());
              if (count == 0) {
                if (heap.ok()) return problems.add("created");
                expect_failure(problems, "create", heap.status(), Code::unsupported, {"driver"});
              } else {
                expect_failure(problems, "create", heap.status(), Code::invalid_argument, {"device"});
              }
              meet(exchange, problems);
            }));
}
TEST(CudaVmmHeap, UnsupportedWithoutAGpu) { expect_refused(Kind::threads); }
TEST(CudaVmmHeap, UnsupportedWithoutAGpuInProcesses) { expect_refused(Kind::met); }

TEST(CudaVmmHeap, DifferentSizesFailBeforeAnythingElse) {
  EXPECT_EQ("", run_ranks(Kind::threads, 2, [](Exchange& exchange, Problems& problems) {
              const std::size_t bytes = exchange.rank() == 0 ? 1 << 20 : 1 << 21;
              const auto heap = memory::create_cuda_vmm_heap(exchange, 0, bytes, patience());
              expect_failure(problems, "create", heap.status(), Code::invalid_argument, {"bytes", "rank 1"});
            }));
}

}  // namespace
}  // namespace nearlight::test
