// Kernel mode: many all-reduces inside one kernel (on the CPU: one loop), each timed by the clock of the place it runs on.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/communicator.hpp"

namespace nearlight::runtime {

// Runs `iterations` all-reduces back to back and waits for them. All ranks call it at the same time, each from its own thread.
// op_ns[i]: nanoseconds between the completions of operation i-1 and i, of the slowest CTA of this rank (GPU: SM cycles,
// scaled by the time of the whole loop). The caller takes the slowest rank.
Status run_all_reduce_loop(Communicator& communicator, const void* send, void* recv, std::size_t count, DataType type,
                           ReduceOp op, std::uint32_t iterations, std::vector<double>& op_ns, Stream stream,
                           const CallOptions& options = {});

}  // namespace nearlight::runtime
