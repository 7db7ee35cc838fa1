// `nearlight bench`: picks the backend and runs there.
#pragma once

#include "cli/bench/options.hpp"

namespace nearlight::bench {

// Returns the exit status.
int bench_command(const BenchOptions& options);

}  // namespace nearlight::bench
