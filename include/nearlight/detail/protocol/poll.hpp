// The only way to wait: poll a predicate until it holds, the time is over or the communicator is told to
// stop.
#pragma once

#include <cstdint>

#include <nearlight/detail/exec/concepts.hpp>
#include <nearlight/detail/exec/fn.hpp>
#include <nearlight/detail/protocol/fault.hpp>

namespace nearlight::protocol {

// Looks at the abort word and the clock; `ok` means: go on. The clock starts at the first look, so a wait
// that is short never reads it. Without a branch of one thread alone: threads in lockstep stay so, and the
// compiler can see it.
template <exec::ExecSpace S>
NL_FN Wait check_limits(const Control<S>& control, std::uint64_t& started_ns) {
  bool aborted = false;
  if (control.abort != nullptr) {
    aborted = S::template load<exec::Order::relaxed, exec::Scope::system>(*control.abort) != 0;
  }
  const std::uint64_t now_ns = S::now_ns();
  started_ns = started_ns == 0 ? now_ns : started_ns;
  bool late = now_ns - started_ns >= control.timeout_ns;
  if constexpr (requires { S::kCallsMayEnd; })
    late = late || (control.end_ns != 0 && now_ns >= control.end_ns);
  return aborted ? Wait::aborted : late ? Wait::timeout : Wait::ok;
}

// How many polls lie before the next look at the limits, `checks` having been made. A space in which a poll
// can take long once the wait has, because the thread then lets others run, looks more often from then on
// (S::kPollsPerLateCheck): there may be more threads than processors, and a slice of the processor is long.
template <exec::ExecSpace S>
NL_FN constexpr std::uint32_t polls_before_check(std::uint32_t checks) {
  if constexpr (requires { S::kPollsPerLateCheck; }) {
    return checks == 0 ? S::kPollsPerCheck : S::kPollsPerLateCheck;
  } else {
    return S::kPollsPerCheck;
  }
}

// Calls `attempt` until it returns true; looks at the limits after every kPollsPerCheck polls. When one is
// reached, calls give_up(outcome) and returns false.
template <exec::ExecSpace S, class Attempt, class GiveUp>
NL_FN bool poll(const Control<S>& control, Attempt&& attempt, GiveUp&& give_up) {
  std::uint64_t started_ns = 0;
  for (std::uint32_t checks = 0;; ++checks) {
    NL_NO_UNROLL
    for (std::uint32_t polls = 0; polls < polls_before_check<S>(checks); ++polls) {
      if (attempt()) return true;
      S::relax(checks * S::kPollsPerCheck + polls);
    }
    if (const Wait limit = check_limits(control, started_ns); limit != Wait::ok) {
      // A last look: a peer may have sent all, ended and been noticed since the one before, and a thread that
      // was not run for long sees the clock first.
      if (attempt()) return true;
      give_up(limit);
      return false;
    }
  }
}

// The same; the outcome as a value.
template <exec::ExecSpace S, class Attempt>
NL_FN Wait poll(const Control<S>& control, Attempt&& attempt) {
  Wait outcome = Wait::ok;
  poll<S>(control, attempt, [&](Wait limit) { outcome = limit; });
  return outcome;
}

// The same for threads in lockstep (S::kLockstep of them, all calling): they leave together, with the same
// outcome, when the attempts of all of them hold in one look, so a false attempt of one makes all of them
// look again.
template <exec::ExecSpace S, class Attempt, class GiveUp>
NL_FN bool poll_in_lockstep(const Control<S>& control, Attempt&& attempt, GiveUp&& give_up) {
  std::uint64_t started_ns = 0;
  for (std::uint32_t checks = 0;; ++checks) {
    NL_NO_UNROLL
    for (std::uint32_t polls = 0; polls < polls_before_check<S>(checks); ++polls) {
      if (S::all_in_lockstep(attempt())) return true;
      S::relax(checks * S::kPollsPerCheck + polls);
    }
    const Wait limit = check_limits(control, started_ns);
    const bool not_aborted = S::all_in_lockstep(limit != Wait::aborted);
    const bool in_time = S::all_in_lockstep(limit != Wait::timeout);
    if (!not_aborted || !in_time) {
      if (S::all_in_lockstep(attempt())) return true;  // as above
      give_up(not_aborted ? Wait::timeout : Wait::aborted);
      return false;
    }
  }
}

}  // namespace nearlight::protocol
