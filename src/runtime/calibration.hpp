// Which regions of the scratch are the fastest for calls of few CTAs: measured with the calls themselves.
#pragma once

#include <cstdint>

#include "algorithm/cuda/all_reduce.hpp"
#include "base/exchange.hpp"
#include "base/status.hpp"
#include "route/placement.hpp"

namespace nearlight::runtime {

// What is measured lasts some 10 ms; ranks that are late end it after this time, and then nothing is placed.
inline constexpr int kCalibrationMs = 40;

// Collective, on the current device, once all ranks' scratch is at rest; `args` names it (sizes, addresses,
// rank; no states and no words of control). Leaves the scratch written to: nothing of it may be used before
// all ranks have put theirs to rest again. Takes some 100 KiB of the GPU's memory and gives it back.
// A failure is CUDA's or the exchange's; a rank that came too late is none.
Result<route::Placement> calibrate(Exchange& exchange, int device, const algorithm::cuda::AllReduceArgs& args,
                                   std::uint32_t regions, Deadline deadline);

}  // namespace nearlight::runtime
