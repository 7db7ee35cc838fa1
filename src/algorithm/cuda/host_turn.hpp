// The kernel that asks the host for a call. Compiles without nvcc.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "algorithm/host_turn.hpp"
#include "base/status.hpp"

namespace nearlight::algorithm::cuda {

// In pinned host memory.
using HostTurnWords = HostTurn<std::uint32_t>;

// Enqueued without programmatic dependent launch: what is in front of it, the copy that staged the data too,
// has ended before it asks.
Status launch_host_turn(HostTurnWords* turn, const HostRequest& request, std::uint64_t limit_ns,
                        cudaStream_t stream);

// As preload(), see cuda/all_reduce.hpp.
Status preload_host_turn();

}  // namespace nearlight::algorithm::cuda
