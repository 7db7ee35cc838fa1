// Groups of processes of which one is killed or stopped, at a random moment or at a chosen point.
#pragma once

#include <cstdint>
#include <string>

namespace nearlight::test {

struct KillTrials {
  std::uint64_t seed = 1;  // trial t is decided by seed + t alone, except for when the processes get to run
  int trials = 100;
  // A test of the trials: survivors are told another rank's number as the victim's, and must complain.
  bool name_another = false;
};

// What became of the survivors, all trials together.
struct KillOutcome {
  int trials = 0;
  // Where a survivor was when it failed.
  int in_meeting = 0, in_creation = 0, in_calls = 0;
  int killed = 0, stopped = 0;  // trials
  std::int64_t latest_ms = 0;   // the longest that a survivor took beyond its limit
  int late = 0;                 // survivors that took more than 100 ms beyond it
  std::string problems;         // "" when all was well; with the trial's seed
  std::string to_string() const;
};

// In each trial 2 to 4 processes meet, create a communicator and reduce without end, by one protocol and
// algorithm. One gets SIGKILL, or SIGSTOP for good: at a point of creation, at a random moment, or while it
// is held up inside a call. Every survivor must return an error that names it. A killed one is noticed at
// once, or, before it had come to the meeting, at the limit; a stopped one at the limit. Then the
// survivors meet again without it and reduce. All groups meet
// under one key, one after the other. Ends at the first trial that goes wrong.
KillOutcome run_kill_trials(const KillTrials& trials);

}  // namespace nearlight::test
