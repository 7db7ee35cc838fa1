// Launching the kernels of the GEMV with its AllReduce, or with an AllGather in front. Compiles without nvcc.
#pragma once

#include <cuda_runtime_api.h>

#include "algorithm/cuda/all_reduce.hpp"
#include "algorithm/gemv.hpp"
#include "base/status.hpp"

namespace nearlight::algorithm::cuda {

// `all`: as for an AllReduce, but for what it sends and receives.
struct GemvArgs {
  AllReduceArgs all;
  Gemv gemv;
  // How a CTA works, one rank's own affair: warps that share a tile, and bytes of dynamic shared memory for
  // the tokens, 0: they are read where they lie. launch_gemv() fills them in.
  std::uint32_t splits, shared_bytes;
};

struct GemvShape {
  DataType type;             // bf16 or f16
  std::uint32_t grid;        // CTAs, at most the number of regions and of tiles
  bool large_shared = true;  // see gemv_shared()
  bool traced = false;       // writes times, where it is bf16
  bool gathers = false;  // the tokens' parts, which must fit the shared memory; else products are summed up
};

// Enqueues one kernel with programmatic dependent launch; nothing is allocated, nothing else is called. It
// may begin to fetch the weight into L2 while the kernel before still runs. One rank: without an exchange.
Status launch_gemv(const GemvArgs& args, const GemvShape& shape, cudaStream_t stream);

// As preload() and preload_traced(), see all_reduce.hpp. `large_shared`: see GemvShape.
Status preload_gemv(bool large_shared);
Status preload_traced_gemv(bool large_shared);

}  // namespace nearlight::algorithm::cuda
