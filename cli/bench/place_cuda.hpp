// A GPU, and a stream of it, as the place of one rank.
#pragma once

#include <memory>

#include "cli/bench/limits.hpp"
#include "cli/bench/place.hpp"
#include "probe/cuda_call.hpp"

namespace nearlight::bench {

// For the calling thread, whose current device becomes `device`.
Result<std::unique_ptr<Place>> make_cuda_place(int device, probe::Stream stream, const Limits& limits);

}  // namespace nearlight::bench
