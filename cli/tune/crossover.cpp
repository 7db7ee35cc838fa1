#include "cli/tune/crossover.hpp"

#include <algorithm>
#include <cmath>

namespace nearlight::tune {

namespace {

using route::Algorithm;
using route::Protocol;
using route::Table;

constexpr Way kLl{Algorithm::one_shot, Protocol::ll}, kSimple{Algorithm::one_shot, Protocol::simple},
    kSentinel{Algorithm::one_shot, Protocol::sentinel}, kTwoShot{Algorithm::two_shot, Protocol::sentinel};

constexpr Crossover kHost[] = {
    {"ll_limit_bytes", &Table::ll_limit_bytes, Counts::message, false, kLl, kSimple},
};
// Integers have no sentinel, and f64 has no code of its own, whatever the operator.
constexpr Crossover kTwoGpus[] = {
    {"sentinel_first_bytes", &Table::sentinel_first_bytes, Counts::sent, true, kLl, kSentinel},
    {"sentinel_any_first_bytes", &Table::sentinel_any_first_bytes, Counts::sent, true, kLl, kSentinel,
     DataType::f64},
    {"sentinel_limit_bytes", &Table::sentinel_limit_bytes, Counts::sent, false, kSentinel, kSimple},
    {"sentinel_any_limit_bytes", &Table::sentinel_any_limit_bytes, Counts::sent, false, kSentinel, kSimple,
     DataType::f64},
    {"ll_limit_bytes", &Table::ll_limit_bytes, Counts::sent, false, kLl, kSimple, DataType::i32},
};
// From three ranks on two-shot comes before simple, up to as many bytes of the message. Integers of more than
// three ranks go from LL to two-shot and hardly come to its limit.
constexpr Crossover kMoreGpus[] = {
    {"sentinel_first_bytes", &Table::sentinel_first_bytes, Counts::sent, true, kLl, kSentinel},
    {"sentinel_any_first_bytes", &Table::sentinel_any_first_bytes, Counts::sent, true, kLl, kSentinel,
     DataType::f64},
    {"two_shot_gain_bytes", &Table::two_shot_gain_bytes, Counts::saved, true, kSentinel, kTwoShot},
    {"sentinel_limit_bytes", &Table::sentinel_limit_bytes, Counts::message, false, kTwoShot, kSimple},
    {"sentinel_any_limit_bytes", &Table::sentinel_any_limit_bytes, Counts::message, false, kTwoShot, kSimple,
     DataType::f64},
};

constexpr std::size_t kStretches = 10;

double median(std::span<const double> values) {
  std::vector<double> sorted(values.begin(), values.end());
  std::sort(sorted.begin(), sorted.end());
  return trace::nearest_rank(sorted, 50);
}

}  // namespace

std::string name_of(const Way& way) {
  const char* const protocol = algorithm::name_of(way.protocol);
  if (way.algorithm == Algorithm::one_shot) return protocol;
  return std::string(algorithm::name_of(way.algorithm)) + " " + protocol;
}

std::span<const Crossover> crossovers_of(bool gpu, int nranks) {
  if (!gpu) return kHost;
  if (nranks <= 2) return kTwoGpus;
  return kMoreGpus;
}

std::uint64_t message_of(std::uint64_t value, Counts counts, int nranks) {
  const auto n = static_cast<std::uint64_t>(nranks);
  if (counts == Counts::sent) return value / (n - 1);
  if (counts == Counts::saved) return value * n / ((n - 1) * (n - 2));
  return value;
}

std::uint64_t value_of(std::uint64_t message, Counts counts, int nranks) {
  const auto n = static_cast<std::uint64_t>(nranks);
  if (counts == Counts::sent) return message * (n - 1);
  if (counts == Counts::saved) return message * (n - 1) * (n - 2) / n;
  return message;
}

std::vector<std::size_t> sizes_around(std::uint64_t message) {
  // Where a protocol is never taken, there is no place to start from: that of small messages.
  const auto middle = static_cast<double>(message == 0 ? 64 : message);
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

Refined refine(const Crossover& crossover, std::uint64_t value, int nranks, std::span<const Point> points) {
  const std::uint64_t border = message_of(value, crossover.counts, nranks);
  const auto is_below = [&](const Point& point) {
    return crossover.first ? point.bytes < border : point.bytes <= border;
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
  std::uint64_t message = 0;
  if (crossover.first) {
    message = after < points.size() ? points[after].bytes : points.back().bytes + 1;
  } else {
    message = after > 0 ? points[after - 1].bytes : points.front().bytes - 1;
  }
  refined.value = value_of(message, crossover.counts, nranks);
  return refined;
}

}  // namespace nearlight::tune
