// `nearlight sol`: the least times of this machine.
#pragma once

#include <string>
#include <vector>

namespace nearlight::cli {

// `arguments`: those after "sol". Returns the exit status: 0, 1 (could not measure), 2 (bad arguments).
int sol_command(const std::vector<std::string>& arguments);

}  // namespace nearlight::cli
