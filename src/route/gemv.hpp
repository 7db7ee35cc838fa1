// The route of a GEMV with its AllReduce, or with an AllGather in front: always one hop by the sentinel; what
// is chosen is the grid.
#pragma once

#include <cstdint>

#include "base/status.hpp"
#include "route/route.hpp"

namespace nearlight::route {

// The same on all ranks. `grid`: as the caller wants it; 0: chosen.
struct GemvFacts {
  std::uint32_t tokens = 1, tiles = 1;
  std::uint32_t grid = 0;
  // Of a gathered vector of a token, vectors of 16 bytes; 0: products are summed up, and nothing is gathered.
  std::uint32_t gathered_vecs = 0;
};

// Code::invalid_argument, naming grid: not for this call. Code::unsupported, naming packets: a region takes
// no tile of so many tokens; naming tokens: what is gathered of them does not fit a CTA's shared memory.
Result<Route> gemv(const Facts& facts, const GemvFacts& what);

}  // namespace nearlight::route
