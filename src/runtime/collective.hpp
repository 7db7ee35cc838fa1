// The collectives by number, as they stand in fault records.
#pragma once

#include <cstdint>

namespace nearlight {

enum class Collective : std::uint32_t { all_reduce = 1 };

}  // namespace nearlight
