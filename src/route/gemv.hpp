// The route of a GEMV with its AllReduce: always one hop by the sentinel; what is chosen is the grid.
#pragma once

#include <cstdint>

#include "base/status.hpp"
#include "route/route.hpp"

namespace nearlight::route {

// The same on all ranks. `grid`: as the caller wants it; 0: chosen.
struct GemvFacts {
  std::uint32_t tokens = 1, tiles = 1;
  std::uint32_t grid = 0;
};

// Code::invalid_argument, naming grid: not for this call. Code::unsupported, naming packets: a region takes
// no tile of so many tokens.
Result<Route> gemv(const Facts& facts, const GemvFacts& what);

}  // namespace nearlight::route
