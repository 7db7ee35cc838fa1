#include "cli/tune/crossover.hpp"

#include <algorithm>
#include <cmath>

namespace nearlight::tune {

namespace {

using route::Protocol;
using route::Table;

constexpr Crossover kHost[] = {
    {"ll_limit_bytes", &Table::ll_limit_bytes, false, Protocol::ll, Protocol::simple},
};
// Integers have no sentinel, and f64 has no code of its own, whatever the operator.
constexpr Crossover kGpu[] = {
    {"sentinel_first_bytes", &Table::sentinel_first_bytes, true, Protocol::ll, Protocol::sentinel},
    {"sentinel_limit_bytes", &Table::sentinel_limit_bytes, false, Protocol::sentinel, Protocol::simple},
    {"sentinel_any_limit_bytes", &Table::sentinel_any_limit_bytes, false, Protocol::sentinel,
     Protocol::simple, DataType::f64},
    {"ll_limit_bytes", &Table::ll_limit_bytes, false, Protocol::ll, Protocol::simple, DataType::i32},
};

constexpr std::size_t kStretches = 10;

double median(std::span<const double> values) {
  std::vector<double> sorted(values.begin(), values.end());
  std::sort(sorted.begin(), sorted.end());
  return trace::nearest_rank(sorted, 50);
}

}  // namespace

std::span<const Crossover> crossovers_of(bool gpu) {
  if (gpu) return kGpu;
  return kHost;
}

std::vector<std::size_t> sizes_around(std::uint64_t value, int others) {
  // Where a protocol is never taken, there is no place to start from: that of small messages.
  const double middle = static_cast<double>(value == 0 ? 64 : value) / others;
  const bool large = middle >= 1 << 20;
  std::vector<std::size_t> sizes;
  for (int half = -4; half <= (large ? 2 : 4); ++half) {
    // 1, 1.5, 2, 3, 4 times as much.
    const double factor = std::exp2(std::floor(half / 2.0)) * (half % 2 != 0 ? 1.5 : 1.0);
    const auto bytes = static_cast<std::size_t>(middle * factor) / 8 * 8;
    sizes.push_back(std::max<std::size_t>(bytes, 8));
  }
  sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
  return sizes;
}

Timing timing_of(std::span<const double> samples_us) {
  Timing timing{median(samples_us), 0};
  const std::size_t stretches = std::min(kStretches, samples_us.size());
  if (stretches < 2) return {timing.us, timing.us};
  double sum = 0, squares = 0;
  for (std::size_t i = 0; i < stretches; ++i) {
    const std::size_t begin = i * samples_us.size() / stretches;
    const std::size_t end = (i + 1) * samples_us.size() / stretches;
    const double middle = median(samples_us.subspan(begin, end - begin));
    sum += middle;
    squares += middle * middle;
  }
  const auto n = static_cast<double>(stretches);
  const double variance = std::max(0.0, (squares - sum * sum / n) / (n - 1));
  // Student's 97.5 percent for ten of them.
  timing.noise_us = 2.26 * std::sqrt(variance / n);
  return timing;
}

double Point::gain() const {
  const double slower = std::max(below.us, above.us);
  return slower > 0 ? std::abs(below.us - above.us) / slower : 0;
}

double Point::noise() const {
  const double slower = std::max(below.us, above.us);
  return slower > 0 ? std::max(kLeastNoise, (below.noise_us + above.noise_us) / slower) : 1;
}

Refined refine(const Crossover& crossover, std::uint64_t value, int others, std::span<const Point> points) {
  const auto factor = static_cast<std::uint64_t>(others);
  const auto is_below = [&](const Point& point) {
    return crossover.first ? point.bytes < value / factor : point.bytes <= value / factor;
  };
  const auto before = static_cast<std::size_t>(std::count_if(points.begin(), points.end(), is_below));
  std::size_t after = before;
  while (after < points.size() && points[after].below_wins()) ++after;
  if (after == before) {
    while (after > 0 && points[after - 1].above_wins()) --after;
  }
  Refined refined{value, 0, 0, 0, 0, false};
  if (after == before) return refined;

  const std::size_t low = std::min(before, after), high = std::max(before, after);
  refined.moved = high - low;
  for (const Point& point : points.subspan(low, refined.moved)) {
    refined.most_gain = std::max(refined.most_gain, point.gain());
    refined.mean_gain += point.gain() / static_cast<double>(refined.moved);
    refined.most_noise = std::max(refined.most_noise, point.noise());
  }
  refined.at_the_edge = after == 0 || after == points.size();
  if (crossover.first) {
    refined.value = after < points.size() ? points[after].bytes * factor : (points.back().bytes + 1) * factor;
  } else {
    refined.value = after > 0 ? points[after - 1].bytes * factor : (points.front().bytes - 1) * factor;
  }
  return refined;
}

}  // namespace nearlight::tune
