// The only way to wait: poll a predicate until it holds, the time is over or the communicator is told to stop.
#pragma once

#include <cstdint>

#include <nearlight/detail/exec/concepts.hpp>
#include <nearlight/detail/exec/fn.hpp>
#include <nearlight/detail/protocol/fault.hpp>

namespace nearlight::protocol {

// Calls `attempt` until it returns true. The clock starts at the first check, after kPollsPerCheck polls, so a wait that is
// short never reads it.
template <exec::ExecSpace S, class Attempt>
NL_FN Wait poll(const Control<S>& control, Attempt&& attempt) {
  std::uint64_t started_ns = 0;
  for (std::uint32_t polls = 1;; ++polls) {
    if (attempt()) return Wait::ok;
    S::relax(polls);
    if (polls % S::kPollsPerCheck != 0) continue;
    if (control.abort != nullptr &&
        S::template load<exec::Order::relaxed, exec::Scope::system>(*control.abort) != 0) {
      return Wait::aborted;
    }
    const std::uint64_t now_ns = S::now_ns();
    if (started_ns == 0) started_ns = now_ns;
    if (now_ns - started_ns >= control.timeout_ns) return Wait::timeout;
  }
}

}  // namespace nearlight::protocol
