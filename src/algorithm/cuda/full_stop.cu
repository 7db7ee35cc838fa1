#include "algorithm/cuda/full_stop.hpp"

#include "algorithm/cuda/enqueue.hpp"

namespace nearlight::algorithm::cuda {

namespace {

__global__ void full_stop() {}

}  // namespace

Status launch_full_stop(cudaStream_t stream) {
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(1);
  config.blockDim = dim3(32);
  config.stream = stream;
  const cudaError_t error = cudaLaunchKernelEx(&config, full_stop);
  if (error != cudaSuccess) return cuda_failure("cudaLaunchKernelEx", error);
  return {};
}

Status preload_full_stop() {
  cudaFuncAttributes attributes{};
  const cudaError_t error = cudaFuncGetAttributes(&attributes, reinterpret_cast<const void*>(full_stop));
  if (error != cudaSuccess) return cuda_failure("cudaFuncGetAttributes", error);
  return {};
}

}  // namespace nearlight::algorithm::cuda
