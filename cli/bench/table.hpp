// The benchmark's tables, as text: lines that are not data begin with '#'.
#pragma once

#include <string>
#include <vector>

#include "cli/bench/engine.hpp"
#include "cli/results.hpp"

namespace nearlight::bench {

// nccl-tests' columns. `rows`: those of one implementation, both variants of a size (or one: the other is
// left out) next to each other. Ends with the number of wrong elements and the average bus bandwidth.
std::string perf_table(const std::vector<const Measured*>& rows, int nranks);

// min p50 p95 p99 p99.9 max samples and the ratios, one line per row. p99.9 is "-" where there are too few
// samples. CPU time, skew and scratch follow where any row has them.
std::string percentile_table(const std::vector<cli::ResultRow>& rows);

// Of one size over several slot offsets: the least, median and largest p50.
struct OffsetSpread {
  std::size_t bytes = 0;
  std::size_t offsets = 0;
  double best_us = 0, median_us = 0, worst_us = 0;
  double ratio_best = 0, ratio_median = 0;  // to sol_us
};
std::vector<OffsetSpread> spread_over_offsets(const std::vector<cli::ResultRow>& rows);
std::string offset_table(const std::vector<OffsetSpread>& rows);

// Bytes per microsecond * 1e-3, as nccl-tests counts: algbw = size / time, busbw = algbw * 2 (n - 1) / n
// for all_reduce, (n - 1) / n where each rank has a part, 1 with a root.
double algorithm_gbs(std::size_t bytes, double us);
double bus_gbs(std::size_t bytes, double us, int nranks, Collective collective = Collective::all_reduce);

}  // namespace nearlight::bench
