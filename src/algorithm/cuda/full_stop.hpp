// A kernel that does nothing, between one that lets its successor begin early and a successor that does not
// wait for it. Compiles without nvcc.
#pragma once

#include <cuda_runtime_api.h>

#include "base/status.hpp"

namespace nearlight::algorithm::cuda {

// Enqueued without programmatic dependent launch: it begins when everything in front of it has ended, and
// lets nothing begin before its own end.
Status launch_full_stop(cudaStream_t stream);

// As preload(), see cuda/all_reduce.hpp.
Status preload_full_stop();

}  // namespace nearlight::algorithm::cuda
