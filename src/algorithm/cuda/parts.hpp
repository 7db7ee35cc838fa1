// Launching the kernels of the collectives by parts. Compiles without nvcc.
#pragma once

#include <cuda_runtime_api.h>

#include "algorithm/cuda/all_reduce.hpp"
#include "algorithm/parts.hpp"
#include "base/status.hpp"

namespace nearlight::algorithm::cuda {

// `all`: as for an AllReduce, but for `count`. Parts lie in all.send and all.recv, in bytes where they are
// moved, in elements where they are reduced.
struct PartsArgs {
  AllReduceArgs all;
  Parts parts;
};

struct PartsShape {
  bool reduces;
  DataType type;  // of a reduction
  Protocol protocol;
  std::uint32_t grid;     // CTAs, at most the number of regions
  std::uint32_t threads;  // of one that run; a multiple of 32, at most kMaxThreads
  bool delayed = false;   // with test delays: moves only
  bool traced = false;    // writes times: moves only; else as without
  bool agrees = false;    // moves by LL: Parts::most is this rank's own. Without delays and times
};

// Enqueues one kernel with programmatic dependent launch; nothing is allocated, nothing else is called.
Status launch_parts(const PartsArgs& args, const PartsShape& shape, cudaStream_t stream);

// As preload() and preload_traced(), see all_reduce.hpp.
Status preload_parts();
Status preload_traced_parts();

}  // namespace nearlight::algorithm::cuda
