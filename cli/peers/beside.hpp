// What is installed beside this program.
#pragma once

#include <string>

namespace nearlight::peers {

// The path of `name` in the folder of the running program; `name` alone where that is not known.
std::string beside_this_program(const char* name);

}  // namespace nearlight::peers
