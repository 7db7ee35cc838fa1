// Ranks that are child processes of the caller, forked and watched by it.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/exchange.hpp"
#include "base/status.hpp"

namespace nearlight::bootstrap {

inline constexpr int kMaxForkRanks = 64;

struct ForkOptions {
  // How long the children may run. Those that are left are then killed.
  std::chrono::milliseconds time_limit{60'000};
  // Called once in the parent when all ranks run, with their processes in rank order: to stop or kill some of
  // them. The limit is not watched and no death is told to the others before it returns, so it must be short.
  std::function<void(std::span<const pid_t>)> on_started;
};

// How one rank's process ended.
struct RankExit {
  int exit_code = -1;      // what the body returned (0..255); -1 when a signal ended it
  int signal = 0;          // that signal, or 0
  bool over_time = false;  // killed because the time limit was reached

  bool ok() const { return exit_code == 0; }
  // "exit code 3", "signal 9 (Killed)", "killed at the time limit".
  std::string to_string() const;
};

struct ForkOutcome {
  std::vector<RankExit> ranks;

  bool ok() const;
  // One line naming each rank that did not end with 0; "all ranks ended well" otherwise.
  std::string to_string() const;
};

// Forks `nranks` children, runs `body` in each of them and waits for their end; the caller is not a rank. The
// body's value is the exit code; the child leaves by _exit, so no destructor of the caller's objects runs in
// it.
//
// A failure means that the group could not be run at all (no child is left then); how the ranks fared stands
// in the outcome. On every path all children are reaped and nothing stays open. Children are killed when the
// calling thread dies.
//
// fork copies only the calling thread, and CUDA does not survive it: call this before the process touches
// CUDA, and while no other thread may hold a lock that the body needs.
Result<ForkOutcome> run_forked(int nranks, const std::function<int(Exchange&)>& body,
                               const ForkOptions& options = {});

}  // namespace nearlight::bootstrap
