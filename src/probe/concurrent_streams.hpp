// Streams whose kernels really run at the same time. CUDA maps streams to a limited number of hardware queues
// (CUDA_DEVICE_MAX_CONNECTIONS) and may put two on one; ranks that share a GPU then wait for each other for
// ever, one kernel spinning in front of the other's.
#pragma once

#include <chrono>
#include <vector>

#include "base/status.hpp"
#include "probe/cuda_call.hpp"

namespace nearlight::probe {

// `count` non-blocking streams of `device`, tried out together. Code::unsupported when no such set was found.
// `meeting_limit`: how long one kernel waits for the others; tools that slow launches down need more of it.
Result<std::vector<Stream>> concurrent_streams(
    int device, int count, std::chrono::nanoseconds meeting_limit = std::chrono::milliseconds(5));

}  // namespace nearlight::probe
