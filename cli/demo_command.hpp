// `nearlight demo`: the all-reduces of one decode step of a published model, between real ranks, checked and
// timed.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/bench/options.hpp"

namespace nearlight::cli {

struct DemoOptions {
  std::string workload = "llama-3.1-70b";
  std::optional<int> ranks;
  bench::Backend backend = bench::Backend::best;
  std::string json;                    // result file to write; "" for none
  std::vector<std::string> arguments;  // as typed, after the program's name
};

// Returns the exit status.
int demo_command(const DemoOptions& options);

}  // namespace nearlight::cli
