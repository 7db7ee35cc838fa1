// Random collectives on random communicators, every result checked. One number, the seed, decides everything
// that the ranks do; only the machine decides who is when where.
#pragma once

#include <cstdint>
#include <string>

#include "tests/support/ranks.hpp"

namespace nearlight::test {

struct Storm {
  std::uint64_t seed = 1;
  std::uint64_t operations = 1000;  // collectives, each counted once, on all communicators together
  int nranks = 0;                   // 0: the seeds choose, 1 to 8
  Kind kind = Kind::threads;

  // What a test of the storm itself plants into each group's first communicator, from the middle on.
  enum class Plant {
    none,
    other_input,  // the last rank reduces something else than the others expect
    other_bytes,  // or sends other messages
    no_barrier,   // nobody waits at the barriers, and the last rank comes late to them
    stays_away,   // the last rank leaves out an operation, with a limit of 300 ms
    lost,         // something that the last rank sends is lost, with the same limit
    spoilt,       // or has other bits
  } plant = Plant::none;
};

struct StormOutcome {
  std::uint64_t operations = 0;  // made and found right by rank 0, by all ranks where nothing is wrong
  std::uint64_t messages = 0;    // of them, groups of sends and receives
  std::uint64_t wrong = 0;       // ranks that had another result, or passed a barrier too early
  std::uint64_t stuck = 0;       // ranks that waited until the time limit
  std::string problems;          // "" when all was well, else what and how to run it again
  std::string to_string() const;
};

// A storm goes in groups of ranks, one after the other: group g has the seed `seed + g` and up to
// kGroupOperations operations, so that one group that went wrong can be run again by itself. Stops after the
// first such group. A group has one to three communicators with random options. A rank drives each of them
// from a thread of its own, all at once: AllReduce of every type, operator, protocol, algorithm and place,
// any count, groups of sends and receives, and barriers, with ranks held up here and there, before a call and
// inside it.
inline constexpr std::uint64_t kGroupOperations = 250;
StormOutcome run_storm(const Storm& storm);

// The command line of the storm program, "--seed N --operations N --ranks N --kind threads|processes".
std::string command_line_of(const Storm& storm);
// The same read; false, and `error`, for one that is none.
bool read_command_line(int argc, char** argv, Storm& storm, std::string& error);
// The storm program: runs what the command line says, prints how it went. 0: well; 1: not; 2: bad usage.
int storm_main(int argc, char** argv);

}  // namespace nearlight::test
