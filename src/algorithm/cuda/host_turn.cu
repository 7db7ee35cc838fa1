#include "algorithm/cuda/host_turn.hpp"

#include <nearlight/detail/exec/cuda_space.cuh>
#include "algorithm/cuda/enqueue.hpp"

namespace nearlight::algorithm::cuda {

namespace {

__global__ void __launch_bounds__(1, 1)
    host_turn(HostTurnWords* turn, const HostRequest request, std::uint64_t limit_ns) {
  take_host_turn<exec::CudaSpace>(*turn, request, limit_ns);
}

}  // namespace

Status launch_host_turn(HostTurnWords* turn, const HostRequest& request, std::uint64_t limit_ns,
                        cudaStream_t stream) {
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(1);
  config.blockDim = dim3(1);
  config.stream = stream;
  const cudaError_t error = cudaLaunchKernelEx(&config, host_turn, turn, request, limit_ns);
  if (error != cudaSuccess) return cuda_failure("cudaLaunchKernelEx", error);
  return {};
}

Status preload_host_turn() {
  cudaFuncAttributes attributes{};
  const cudaError_t error = cudaFuncGetAttributes(&attributes, reinterpret_cast<const void*>(host_turn));
  if (error != cudaSuccess) return cuda_failure("cudaFuncGetAttributes", error);
  return {};
}

}  // namespace nearlight::algorithm::cuda
