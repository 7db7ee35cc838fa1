// The flag barrier as a kernel of one warp, in the first region. Compiles without nvcc.
#pragma once

#include <cuda_runtime_api.h>

#include "algorithm/cuda/all_reduce.hpp"
#include "base/status.hpp"

namespace nearlight::algorithm::cuda {

// Of `args` what names buffers and operator is not looked at.
Status launch_barrier(const AllReduceArgs& args, cudaStream_t stream);

// As preload(), see there.
Status preload_barrier();

}  // namespace nearlight::algorithm::cuda
