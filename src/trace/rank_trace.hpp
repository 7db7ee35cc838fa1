// What one rank's rings held, and what several ranks' say together.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trace/epoch_ring.hpp"
#include "trace/turn_ring.hpp"

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

  // One turn of one end of a pipe, see TurnTimes.
  struct Turn {
    int peer;
    bool sends;
    std::uint32_t lane, number, bytes;
    std::uint64_t at_ns[kEvents];

    std::uint64_t at(Event event) const { return at_ns[static_cast<std::uint32_t>(event)]; }
    // When the other side let it go on: the sender had room, or the receiver the message. 0: never.
    std::uint64_t went_on() const {
      return at(Event::arrived) != 0 || !sends ? at(Event::arrived) : at(Event::publish);
    }
  };
  std::vector<Turn> turns;  // by the time of start

  // What the program says of its own.
  struct Span {
    std::string name;  // is_name()
    std::uint32_t track;
    std::uint64_t begin_ns, end_ns;  // of the rank's clock
    std::uint32_t to, from;          // ranks, by bits: arrows that begin at the begin, or end at the end
    std::uint64_t message;           // of the arrows
  };
  std::vector<Span> spans;  // as they came
};

// Whether it can be a span's name: it stands in JSON as it is.
bool is_name(std::string_view name);

// Adds what the ring of `region` holds.
void append(RankTrace& trace, std::uint32_t region, std::span<const EpochTimes> ring);
// Adds what the rings of the ends of pipes hold; they are as long as each other.
void append(RankTrace& trace, std::uint32_t lanes, std::span<const TurnTimes> rings);
// Puts epochs and turns into the order of time.
void sort(RankTrace& trace);

// Makes the clocks of a group's ranks agree as far as messages show it: nothing arrives before it was sent,
// in either direction. Moves offsets of ranks with an error, within that error, and makes the error smaller.
void align(std::span<RankTrace> ranks);

// Chrome's and Perfetto's JSON: a process a rank, a thread a region, an end of a pipe and a track, slices for
// sending, waiting and reducing, an arrow from each publish to the arrival it made possible. Each rank's file
// has its own ends of the arrows: together they are whole. The ranks' raw times stand in "nearlight".
std::string chrome_json(std::span<const RankTrace> ranks);

// How a rank's time went. Of the ranks in one trace.
struct Waits {
  std::uint64_t group;
  int rank;
  std::uint64_t epochs = 0;
  std::uint64_t messages = 0;    // turns of them, as sender or receiver
  double waited_us = 0;          // for epochs and, each turn for itself, for messages
  std::uint64_t unfinished = 0;  // epochs and turns in which something never came
  int most_for = -1;             // the rank that was the last to send in the waits; -1: no wait
  double most_us = 0;            // how much of it for that one
};
std::vector<Waits> waits_of(std::span<const RankTrace> ranks);

}  // namespace nearlight::trace
