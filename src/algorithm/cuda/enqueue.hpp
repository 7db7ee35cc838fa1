// Launching and loading a kernel that takes AllReduceArgs.
#pragma once

#include <cuda_runtime_api.h>

#include "algorithm/cuda/all_reduce.hpp"
#include "base/status.hpp"

namespace nearlight::algorithm::cuda {

using Kernel = void (*)(const AllReduceArgs);

inline Status cuda_failure(const char* call, cudaError_t error) {
  (void)cudaGetLastError();  // a failed call must not make the program's next check fail
  return failure(Code::cuda_error, "%s: %s", call, cudaGetErrorString(error));
}

// Enqueued with programmatic dependent launch.
Status enqueue(Kernel kernel, const AllReduceArgs& args, unsigned ctas, unsigned threads,
               cudaStream_t stream);

// Lazy loading would wait for a kernel that waits for the launch.
Status load_kernel(Kernel kernel);

}  // namespace nearlight::algorithm::cuda
