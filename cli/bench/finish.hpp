// The end of a run, at rank 0.
#pragma once

#include <vector>

#include "cli/bench/engine.hpp"
#include "cli/bench/options.hpp"
#include "cli/bench/present.hpp"

namespace nearlight::bench {

// Prints the tables, keeps the file of --json, compares with that of --compare. Returns the exit status.
int finish(const BenchOptions& options, const Plan& plan, const Setting& setting,
           const std::vector<Measured>& measured);

}  // namespace nearlight::bench
