// A session whose waits have no time limit, see no abort word and record no failure: what is left when a wait
// is nothing but a wait. The library has no code with it. The benchmark makes such code for itself, to
// measure what the limits cost (cli/bench/without_limits.hpp).
#pragma once

#include <cstdint>

#include <nearlight/detail/exec/concepts.hpp>
#include <nearlight/detail/exec/fn.hpp>
#include <nearlight/detail/protocol/session.hpp>

namespace nearlight::algorithm {

template <protocol::RegionView V, exec::Coop C>
class SessionWithoutLimits : public protocol::Session<V, C> {
 public:
  using Space = typename V::Space;
  using protocol::Session<V, C>::Session;

  NL_FN bool failed() const { return false; }

  template <class Attempt, class Blame>
  NL_FN bool wait(Attempt&& attempt, const Blame&) {
    NL_NO_UNROLL
    for (std::uint32_t polls = 0; !attempt(); ++polls) Space::relax(polls);
    return true;
  }
  template <class Attempt, class Blame>
  NL_FN bool wait_in_lockstep(Attempt&& attempt, const Blame&) {
    NL_NO_UNROLL
    for (std::uint32_t polls = 0; !Space::all_in_lockstep(attempt()); ++polls) Space::relax(polls);
    return true;
  }
  template <class Attempt, class Blame>
  NL_FN void wait_or_leave(Attempt&& attempt, const Blame& blame) {
    (void)wait_in_lockstep(attempt, blame);
  }
};

}  // namespace nearlight::algorithm
