// NEARLIGHT_* environment variables, read with their limits. A bad value is an error that names the variable.
#pragma once

#include <cstdint>
#include <optional>

#include "base/status.hpp"

namespace nearlight {

// Unset: no value. Not a whole number in [lowest, highest]: Code::invalid_argument.
Result<std::optional<std::int64_t>> env_integer(const char* name, std::int64_t lowest, std::int64_t highest);

}  // namespace nearlight
