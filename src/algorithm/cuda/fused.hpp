// Launching the kernels of the fused AllReduce. Compiles without nvcc.
#pragma once

#include <cuda_runtime_api.h>

#include "algorithm/cuda/all_reduce.hpp"
#include "algorithm/row_finish.hpp"
#include "base/status.hpp"

namespace nearlight::algorithm::cuda {

// `all`: as for an AllReduce, but for what it sends and receives.
struct FusedArgs {
  AllReduceArgs all;
  FusedRows rows;
};

struct FusedShape {
  DataType type;       // bf16 or f16
  std::uint32_t grid;  // CTAs, at most the number of regions; a multiple of rows.spread, at most a row each
  std::uint32_t threads;  // of one; a multiple of 32, at most kMaxThreads
  std::uint32_t held;   // vectors a thread: 1, 2 or 4, and threads * held a CTA's part of a row; 0: streamed
  bool once;            // a row for each CTA or team of CTAs, at most 2 held
  bool traced = false;  // writes times, where it is bf16
};

// Enqueues one kernel with programmatic dependent launch, in clusters where rows that are normalised are
// spread; nothing is allocated, nothing else is called.
Status launch_fused(const FusedArgs& args, const FusedShape& shape, cudaStream_t stream);

// As preload() and preload_traced(), see all_reduce.hpp.
Status preload_fused();
Status preload_traced_fused();

}  // namespace nearlight::algorithm::cuda
