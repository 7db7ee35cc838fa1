// What one rank's rings held, and what several ranks' say together.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "trace/epoch_ring.hpp"

namespace nearlight::trace {

struct RankTrace {
  std::uint64_t group = 0;  // the same for the ranks of one communicator, and no other's
  int rank = 0, nranks = 1;
  int process = 0;
  std::string backend;
  // CLOCK_MONOTONIC of this host = a time of the rank's clock + offset, give or take error.
  std::int64_t offset_ns = 0, error_ns = 0;
  // CLOCK_REALTIME less CLOCK_MONOTONIC when the file was written.
  std::int64_t realtime_ns = 0;

  struct Epoch {
    std::uint32_t region, epoch, collective;
    // Of the rank's clock; 0: it did not happen.
    std::uint64_t at_ns[kEvents];

    std::uint64_t at(Event event) const { return at_ns[static_cast<std::uint32_t>(event)]; }
  };
  std::vector<Epoch> epochs;  // by the time of publish
};

// Adds what the ring of `region` holds.
void append(RankTrace& trace, std::uint32_t region, std::span<const EpochTimes> ring);
// Puts the epochs into the order of time.
void sort(RankTrace& trace);

// Makes the clocks of a group's ranks agree as far as messages show it: nothing arrives before it was sent,
// in either direction. Moves offsets of ranks with an error, within that error, and makes the error smaller.
void align(std::span<RankTrace> ranks);

// Chrome's and Perfetto's JSON: a process a rank, a thread a region, slices for sending, waiting and
// reducing, an arrow from each publish to the arrival it made possible. Each rank's file has its own ends of
// the arrows: together they are whole. The ranks' raw times stand in "nearlight".
std::string chrome_json(std::span<const RankTrace> ranks);

// How a rank's time went. Of the ranks in one trace.
struct Waits {
  std::uint64_t group;
  int rank;
  std::uint64_t epochs = 0;
  double waited_us = 0;
  std::uint64_t unfinished = 0;  // epochs in which something never came
  int most_for = -1;             // the rank that was the last to send in the waits; -1: no wait
  double most_us = 0;            // how much of it for that one
};
std::vector<Waits> waits_of(std::span<const RankTrace> ranks);

}  // namespace nearlight::trace
