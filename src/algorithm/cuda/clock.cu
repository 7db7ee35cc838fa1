#include <nearlight/detail/exec/cuda_space.cuh>
#include "algorithm/cuda/clock.hpp"
#include "algorithm/cuda/enqueue.hpp"

namespace nearlight::algorithm::cuda {

namespace {

__global__ void write_time(std::uint64_t* to) { *to = exec::CudaSpace::now_ns(); }

}  // namespace

// Launched the plain way: with programmatic dependent launch it would not wait for what is before.
Status launch_clock(std::uint64_t* to, cudaStream_t stream) {
  write_time<<<1, 1, 0, stream>>>(to);
  const cudaError_t error = cudaGetLastError();
  return error == cudaSuccess ? Status() : cuda_failure("the kernel that writes the time", error);
}

Status preload_clock() {
  cudaFuncAttributes attributes{};
  const cudaError_t error = cudaFuncGetAttributes(&attributes, write_time);
  return error == cudaSuccess ? Status() : cuda_failure("cudaFuncGetAttributes", error);
}

}  // namespace nearlight::algorithm::cuda
