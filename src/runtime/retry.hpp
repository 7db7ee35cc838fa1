// When a call that timed out is made again: after a reset of all ranks, and only where that can be right.
//
// A call of a group with retries ends in two steps: the data, and then a barrier. Who passes the barrier of
// call n knows that every rank has the data of n, so that nobody will ask for n again; who has only the data
// may have to give its input once more. States and why: docs/dev/recovery.md;
// tests/unit/runtime_retry_test.cpp runs all of it against an adversary.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <span>

namespace nearlight::runtime {

struct RetryPolicy {
  std::uint32_t attempts = 0;              // how often a call is made again; 0: never
  std::chrono::milliseconds backoff{100};  // before the first time; twice as long before each next
  static constexpr std::uint32_t kMost = 16;

  std::chrono::milliseconds wait_before(std::uint32_t attempt) const {
    return std::min(backoff * (1 << std::min(attempt, 10u)), std::chrono::milliseconds(10'000));
  }
};

// What a rank brings to the meeting after the reset.
struct RetryVote {
  std::uint64_t call = 0;        // the one that it is in; from 1
  std::uint32_t done = 0;        // it has the data, and only the barrier failed
  std::uint32_t can_repeat = 0;  // its input is still what it was
};

enum class Verdict { finished, repeat, give_up };

// The same conclusion on every rank: all go on with one and the same call afterwards, or all give up.
inline Verdict judge(const RetryVote& mine, std::span<const RetryVote> all) {
  std::uint64_t lowest = mine.call, highest = mine.call;
  for (const RetryVote& vote : all) {
    lowest = std::min(lowest, vote.call);
    highest = std::max(highest, vote.call);
  }
  if (highest - lowest > 1) return Verdict::give_up;  // they did not make the same calls
  const auto holds = [&](auto&& of) {
    return std::all_of(all.begin(), all.end(), [&](const RetryVote& vote) { return of(vote); });
  };
  // All have the data of the lowest: those who are in it have finished it, the others make theirs, which the
  // first come to by themselves.
  if (holds([&](const RetryVote& vote) { return vote.call != lowest || vote.done != 0; })) {
    const bool one_call = lowest == highest;
    if (one_call) return Verdict::finished;
    // Nobody can have the data of the higher one, which not all ranks have begun.
    if (!holds([&](const RetryVote& vote) {
          return vote.call == lowest || (vote.done == 0 && vote.can_repeat != 0);
        }))
      return Verdict::give_up;
    return mine.call == lowest ? Verdict::finished : Verdict::repeat;
  }
  // Somebody lacks the data of the lowest, so that nobody can have passed its barrier.
  if (lowest != highest) return Verdict::give_up;
  return holds([](const RetryVote& vote) { return vote.can_repeat != 0; }) ? Verdict::repeat
                                                                           : Verdict::give_up;
}

}  // namespace nearlight::runtime
