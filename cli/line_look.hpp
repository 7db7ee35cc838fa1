// Whether this machine's GPUs keep lines of 128 bytes whole, for `nearlight info`.
#pragma once

#include <string>

#include "probe/gpu_facts.hpp"

namespace nearlight::cli {

// In words: what the test of two ranks found, on the first two GPUs with NVLink between them, or why there
// was none. It takes a communicator, and so about a second.
std::string look_at_lines(const probe::GpuFacts& gpus);

}  // namespace nearlight::cli
