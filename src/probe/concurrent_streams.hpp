// Streams whose kernels really run at the same time. CUDA maps streams to a limited number of hardware queues
// (CUDA_DEVICE_MAX_CONNECTIONS) and may put two on one; ranks that share a GPU then wait for each other for
// ever, one kernel spinning in front of the other's.
#pragma once

#include <vector>

#include "base/status.hpp"
#include "probe/cuda_call.hpp"

namespace nearlight::probe {

// `count` non-blocking streams of `device`, tried out together. Code::unsupported when no such set was found.
Result<std::vector<Stream>> concurrent_streams(int device, int count);

}  // namespace nearlight::probe
