#include "trace/samples.hpp"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <numeric>

namespace nearlight::trace {

double nearest_rank(std::span<const double> sorted, double percent) {
  assert(!sorted.empty() && percent > 0 && percent <= 100);
  // The small subtraction undoes rounding: 99.9 % of 10 000 is 9990, not 9990.000000000002 and so rank 9991.
  const double rank = std::ceil(static_cast<double>(sorted.size()) * percent / 100.0 - 1e-6);
  const auto index = static_cast<std::size_t>(std::max(rank, 1.0)) - 1;
  return sorted[std::min(index, sorted.size() - 1)];
}

Result<Summary> Samples::summary() const {
  if (values_us_.empty()) return failure(Code::invalid_usage, "no samples to summarise");
  for (std::size_t i = 0; i < values_us_.size(); ++i) {
    if (!std::isfinite(values_us_[i]) || values_us_[i] < 0) {
      return failure(Code::invalid_argument, "sample %zu is %g us, which is no duration", i, values_us_[i]);
    }
  }
  std::vector<double> sorted = values_us_;
  std::sort(sorted.begin(), sorted.end());
  Summary summary;
  summary.count = sorted.size();
  summary.min_us = sorted.front();
  summary.p50_us = nearest_rank(sorted, 50);
  summary.p95_us = nearest_rank(sorted, 95);
  summary.p99_us = nearest_rank(sorted, 99);
  if (sorted.size() >= kSamplesForP999) summary.p999_us = nearest_rank(sorted, 99.9);
  summary.max_us = sorted.back();
  summary.mean_us = std::accumulate(sorted.begin(), sorted.end(), 0.0) / static_cast<double>(sorted.size());
  return summary;
}

Result<Samples> slowest_rank(std::span<const Samples> ranks) {
  if (ranks.empty()) return failure(Code::invalid_argument, "ranks: none given");
  Samples slowest;
  slowest.reserve(ranks[0].size());
  for (std::size_t rank = 1; rank < ranks.size(); ++rank) {
    if (ranks[rank].size() != ranks[0].size()) {
      return failure(Code::invalid_argument, "ranks: rank %zu has %zu samples, rank 0 has %zu", rank,
                     ranks[rank].size(), ranks[0].size());
    }
  }
  for (std::size_t i = 0; i < ranks[0].size(); ++i) {
    double value_us = ranks[0].values_us()[i];
    for (const Samples& rank : ranks.subspan(1)) value_us = std::max(value_us, rank.values_us()[i]);
    slowest.add_us(value_us);
  }
  return slowest;
}

}  // namespace nearlight::trace
