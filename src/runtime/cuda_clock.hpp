// How a GPU's clock stands to the host's.
#pragma once

#include <cstdint>

#include "base/status.hpp"

namespace nearlight::runtime {

struct ClockOffset {
  // CLOCK_MONOTONIC = the GPU's time + offset, give or take error. ns.
  std::int64_t offset_ns = 0, error_ns = 0;
};

// Of the current device: the best of some pairs, by kernels that write the time into memory of the host. The
// kernel is loaded (preload_clock()). Takes about a millisecond, half a second at most.
Result<ClockOffset> measure_clock_offset();

}  // namespace nearlight::runtime
