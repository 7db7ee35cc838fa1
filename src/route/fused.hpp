// The route of a fused AllReduce: always one hop by the sentinel; what is chosen is how its rows are cut.
#pragma once

#include <cstdint>

#include "base/status.hpp"
#include "route/route.hpp"

namespace nearlight::route {

// The same on all ranks. `spread`, `grid`: as the caller wants them; 0: chosen.
struct FusedFacts {
  std::uint32_t rows = 1, vecs = 1;  // of 16 bytes, of a row
  bool normalises = true;            // so that those who have a row must meet
  std::uint32_t spread = 0, grid = 0;
};

// The grid is a multiple of `spread`; `held` 0: a row goes in rounds.
struct FusedRoute : Route {
  std::uint32_t spread = 1;   // CTAs that share a row, a cluster where it is normalised
  std::uint32_t at_once = 1;  // rows that a CTA sends before it waits
  bool once = false;          // a row for each CTA or cluster, in one round
};

// Of a row, at most: a cluster of all GPUs that have them.
inline constexpr std::uint32_t kMostSpread = 8;

// Code::invalid_argument, naming spread or grid: not for this call.
Result<FusedRoute> fused(const Facts& facts, const FusedFacts& rows);

}  // namespace nearlight::route
