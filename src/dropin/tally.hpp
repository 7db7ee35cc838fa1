// What this process has counted: calls by function, size and verdict.
#pragma once

#include "dropin/operation.hpp"

namespace nearlight::dropin {

// Some nanoseconds; any thread.
void count(const Operation& operation, const Verdict& verdict);

// What became of a communicator, or what is to be said once: a row without a size. `reason` is of for_ever().
void note(const char* what, const Verdict& verdict);

}  // namespace nearlight::dropin
