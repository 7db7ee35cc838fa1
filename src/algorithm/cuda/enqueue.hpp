// Launching and loading a kernel that takes its arguments as one struct.
#pragma once

#include <cuda_runtime.h>

#include "algorithm/cuda/all_reduce.hpp"
#include "base/status.hpp"

namespace nearlight::algorithm::cuda {

inline Status cuda_failure(const char* call, cudaError_t error) {
  (void)cudaGetLastError();  // a failed call must not make the program's next check fail
  return failure(Code::cuda_error, "%s: %s", call, cudaGetErrorString(error));
}

// Enqueued with programmatic dependent launch. `cluster`: CTAs of a cluster; 1: none (before sm_90 there are
// none). `shared_bytes`: dynamic shared memory of a CTA.
template <class Args>
Status enqueue(void (*kernel)(const Args), const Args& args, unsigned ctas, unsigned threads,
               cudaStream_t stream, unsigned cluster = 1, std::size_t shared_bytes = 0) {
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(ctas);
  config.blockDim = dim3(threads);
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  cudaLaunchAttribute attributes[2] = {};
  attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[0].val.programmaticStreamSerializationAllowed = 1;
  attributes[1].id = cudaLaunchAttributeClusterDimension;
  attributes[1].val.clusterDim.x = cluster;
  attributes[1].val.clusterDim.y = attributes[1].val.clusterDim.z = 1;
  config.attrs = attributes;
  config.numAttrs = cluster > 1 ? 2 : 1;
  const cudaError_t error = cudaLaunchKernelEx(&config, kernel, args);
  if (error != cudaSuccess) return cuda_failure("cudaLaunchKernelEx", error);
  return {};
}

// Lazy loading would wait for a kernel that waits for the launch.
template <class Args>
Status load_kernel(void (*kernel)(const Args)) {
  cudaFuncAttributes attributes{};
  const cudaError_t error = cudaFuncGetAttributes(&attributes, reinterpret_cast<const void*>(kernel));
  if (error != cudaSuccess) return cuda_failure("cudaFuncGetAttributes", error);
  return {};
}

}  // namespace nearlight::algorithm::cuda
