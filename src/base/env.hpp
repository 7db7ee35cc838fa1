// NEARLIGHT_* environment variables, read with their limits. A bad value is an error that names the variable.
#pragma once

#include <cstdint>
#include <optional>

#include "base/status.hpp"

namespace nearlight {

// `text`, the value of the variable `name`, as a whole number in [lowest, highest]; else
// Code::invalid_argument naming the variable.
Result<std::int64_t> env_integer_of(const char* name, const char* text, std::int64_t lowest,
                                    std::int64_t highest);

// Unset: no value. Not a whole number in [lowest, highest]: Code::invalid_argument.
Result<std::optional<std::int64_t>> env_integer(const char* name, std::int64_t lowest, std::int64_t highest);

}  // namespace nearlight
