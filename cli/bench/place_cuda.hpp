// A GPU, and a stream of it, as the place of one rank.
#pragma once

#include <memory>
#include <vector>

#include "cli/bench/limits.hpp"
#include "cli/bench/place.hpp"
#include "probe/cuda_call.hpp"

namespace nearlight::bench {

// For the calling thread, whose current device becomes `device`. `streams`: of each job that runs at the same
// time, at least one.
Result<std::unique_ptr<Place>> make_cuda_place(int device, std::vector<probe::Stream> streams,
                                               const Limits& limits);

}  // namespace nearlight::bench
