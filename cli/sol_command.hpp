// `nearlight sol`: the least times of this machine.
#pragma once

#include <string>
#include <vector>

#include "cli/results.hpp"
#include "probe/sol.hpp"

namespace nearlight::cli {

// What the command prints.
std::string sol_table(const Machine& machine, const probe::SolReport& report);

// `arguments`: those after "sol". Returns the exit status (exit_code.hpp).
int sol_command(const std::vector<std::string>& arguments);

}  // namespace nearlight::cli
