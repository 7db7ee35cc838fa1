// A kernel that writes down the time. Compiles without nvcc.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "base/status.hpp"

namespace nearlight::algorithm::cuda {

// *to = the GPU's time in ns, once all that the stream had before is done. `to`: device memory.
Status launch_clock(std::uint64_t* to, cudaStream_t stream);

// As preload() of all_reduce.hpp.
Status preload_clock();

}  // namespace nearlight::algorithm::cuda
