// The speed-of-light probe with the heap it needs, made for the occasion and freed after.
#pragma once

#include "base/status.hpp"
#include "probe/sol.hpp"

namespace nearlight::cli {

// Two devices with peer access, or twice the same. This process must be able to use both. unsupported without
// CUDA.
Result<probe::SolReport> measure_sol_on_gpus(int device_a, int device_b, int lines = probe::kDefaultLines);
// Two threads.
Result<probe::SolReport> measure_sol_on_cpu(int lines = probe::kDefaultLines);

}  // namespace nearlight::cli
