// `nearlight tune`: measures where one protocol becomes faster than another, and writes the route table that
// follows.
#pragma once

#include <optional>
#include <string>

#include "cli/bench/options.hpp"

namespace nearlight::tune {

struct TuneOptions {
  bench::Backend backend = bench::Backend::best;
  std::optional<int> ranks;
  int budget_s = 30;  // about so long, without what it takes to begin
  std::string output = "route-table.json";
};

// Returns the exit status.
int tune_command(const TuneOptions& options);

}  // namespace nearlight::tune
