// Memory that all ranks of a benchmark share, threads or processes: barriers, a common start, and everybody's
// samples.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/exchange.hpp"
#include "base/status.hpp"

namespace nearlight::bench {

// Nanoseconds of the steady clock, which all processes of a machine share.
std::uint64_t now_ns();

// Collective as an Exchange is: every rank makes the same calls in the same order. Every wait ends at its
// time limit, or at once when a rank has said that it failed.
class Meeting {
 public:
  // `samples`: how many numbers each rank may post. Collective.
  static Result<std::unique_ptr<Meeting>> create(Exchange& exchange, std::size_t samples,
                                                 std::chrono::milliseconds limit);
  ~Meeting();
  Meeting(const Meeting&) = delete;
  Meeting& operator=(const Meeting&) = delete;

  int rank() const { return rank_; }
  int nranks() const { return nranks_; }

  Status barrier();
  // A barrier that everyone leaves at the same moment, and that moment: the last rank to arrive fixes it a
  // little ahead of itself, and all spin until then. What a rank was late by is so kept out of the time that
  // follows.
  Result<std::uint64_t> align();
  // Tells every rank that this one cannot go on: their waits end.
  void fail(const Status& why);

  // What another rank failed with, if one did: Code::remote_error that names it.
  Status failed_peer() const;
  // Sleeps until a rank (this one too) has failed; false when `limit` has passed or somebody woke the
  // sleepers.
  bool wait_for_failure(std::chrono::milliseconds limit) const;
  void wake_sleepers() const;

  // This rank's place for numbers; another rank's may be read between two barriers.
  std::span<double> mine() const { return of(rank_); }
  std::span<double> of(int rank) const;
  // Slowest rank of each of the first `out.size()` numbers. Everybody has posted (a barrier is inside),
  // nobody posts the next ones before all have read (another one).
  Status slowest(std::span<double> out);
  // How far the largest and the smallest of all ranks lie apart, number by number; as slowest().
  Status spread(std::span<double> out);
  // Sum over the ranks of one number each.
  Result<double> total(double value);

 private:
  struct Shared;
  Meeting(int rank, int nranks, std::size_t samples, std::chrono::milliseconds limit)
      : rank_(rank), nranks_(nranks), samples_(samples), limit_(limit) {}
  Status dead_peer() const;
  template <class Ready>
  Status wait(Ready ready) const;
  template <class Combine>  // (least, most) -> number
  Status combine(std::span<double> out, Combine combine);

  int rank_, nranks_;
  std::size_t samples_;
  std::chrono::milliseconds limit_;
  std::vector<pid_t> processes_;  // of the ranks; empty for threads
  void* memory_ = nullptr;
  std::size_t bytes_ = 0;
  Shared* shared_ = nullptr;
};

}  // namespace nearlight::bench
