// Where a route table goes over from one protocol to another, and what measurements say about it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/types.hpp"
#include "route/route.hpp"
#include "route/table.hpp"
#include "trace/samples.hpp"

namespace nearlight::tune {

// A way to do an all-reduce.
struct Way {
  route::Algorithm algorithm = route::Algorithm::one_shot;
  route::Protocol protocol = route::Protocol::ll;
};
// "ll", "two_shot sentinel".
std::string name_of(const Way& way);

// What a number counts.
enum class Counts {
  message,  // its bytes
  sent,     // by one rank in one-shot: the message times the other ranks
  saved,    // by two-shot, of what one rank sends
};

struct Crossover {
  const char* field;
  route::TableNumber number;
  Counts counts;
  bool first;                     // the number is the first size of `above`; else the last of `below`
  Way below, above;               // of smaller and of larger messages
  DataType type = DataType::f32;  // of the messages that tell
};
// In the order in which they are measured. The operator is always the sum.
std::span<const Crossover> crossovers_of(bool gpu, int nranks);

// From a number of the table to bytes of a message, as the route does it, and back.
std::uint64_t message_of(std::uint64_t value, Counts counts, int nranks);
std::uint64_t value_of(std::uint64_t message, Counts counts, int nranks);

// Bytes of the messages to look at, ascending: `message` itself, and from a quarter of it to four times as
// much (twice, from a MiB on). Multiples of 8, at least 8.
std::vector<std::size_t> sizes_around(std::uint64_t message);

// A time, and how far it might be off.
struct Timing {
  double us = 0;
  double noise_us = 0;
};
// The median, and how far the medians of ten stretches of the samples lie apart: samples that follow each
// other are not independent, and a busy machine is slow for a while. `samples` are not empty.
Timing timing_of(std::span<const double> samples_us);

// One size by both protocols.
struct Point {
  std::size_t bytes = 0;
  Timing below, above;

  // What the faster one saves, of the slower one's time, 0 to 1.
  double gain() const;
  // The same for what could be chance; at least kLeastNoise.
  double noise() const;
  bool below_wins() const { return below.us < above.us && gain() > noise(); }
  bool above_wins() const { return above.us < below.us && gain() > noise(); }
};
inline constexpr double kLeastNoise = 0.02;

struct Refined {
  std::uint64_t value = 0;                              // of the table
  std::size_t moved = 0;                                // sizes that change sides
  double most_gain = 0, mean_gain = 0, most_noise = 0;  // over them
  bool at_the_edge = false;                             // all sizes on one side have moved
};
// Moves `value` over one size after the other, as long as the other protocol is faster there by more than
// noise. `points` ascending.
Refined refine(const Crossover& crossover, std::uint64_t value, int nranks, std::span<const Point> points);

}  // namespace nearlight::tune
