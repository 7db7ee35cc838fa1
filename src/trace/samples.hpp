// Samples of a duration and what a table says about them: nearest-rank percentiles of the raw samples,
// nothing binned.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/status.hpp"

namespace nearlight::trace {

// From this many samples on a p99.9 is worth printing: ten samples lie above it.
inline constexpr std::size_t kSamplesForP999 = 10'000;

struct Summary {
  std::size_t count = 0;
  double min_us = 0;
  double p50_us = 0;
  double p95_us = 0;
  double p99_us = 0;
  std::optional<double> p999_us;  // absent below kSamplesForP999 samples
  double max_us = 0;
  double mean_us = 0;
};

// The smallest value such that at least `percent` % of `sorted` are not above it. `sorted` ascending and not
// empty, 0 < percent <= 100.
double nearest_rank(std::span<const double> sorted, double percent);

class Samples {
 public:
  Samples() = default;

  // Room for `count` samples, so that adding them allocates nothing.
  void reserve(std::size_t count) { values_us_.reserve(count); }
  void add_us(double value_us) { values_us_.push_back(value_us); }
  void add_ns(std::uint64_t value_ns) { values_us_.push_back(static_cast<double>(value_ns) * 1e-3); }
  void clear() { values_us_.clear(); }

  std::size_t size() const { return values_us_.size(); }
  bool empty() const { return values_us_.empty(); }
  // In the order they were added, in microseconds.
  std::span<const double> values_us() const { return values_us_; }

  // invalid_usage without samples; invalid_argument when a sample is negative or not a number.
  Result<Summary> summary() const;

 private:
  std::vector<double> values_us_;
};

// Sample i of the result is the largest sample i of any rank: an operation is done when its slowest rank is.
// invalid_argument when the ranks do not have the same number of samples.
Result<Samples> slowest_rank(std::span<const Samples> ranks);

}  // namespace nearlight::trace
