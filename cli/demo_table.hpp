// The demo's table, for a person.
#pragma once

#include <string>
#include <vector>

#include "cli/bench/engine.hpp"
#include "cli/bench/present.hpp"
#include "cli/workload.hpp"

namespace nearlight::cli {

// "16 KiB", "1.5 MiB", "100 B".
std::string size_text(std::size_t bytes);

// `measured`: of all implementations. `where`: "4 CPU processes over shared memory".
std::string demo_table(const Workload& workload, const std::string& where, const bench::Setting& setting,
                       Mode mode, const std::vector<bench::Measured>& measured);

}  // namespace nearlight::cli
