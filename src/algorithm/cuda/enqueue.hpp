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

// Enqueued with programmatic dependent launch.
template <class Args>
Status enqueue(void (*kernel)(const Args), const Args& args, unsigned ctas, unsigned threads,
               cudaStream_t stream) {
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(ctas);
  config.blockDim = dim3(threads);
  config.stream = stream;
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  config.attrs = &attribute;
  config.numAttrs = 1;
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
