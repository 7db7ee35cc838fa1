// Flag barrier: no rank goes on before all have come. One release flag from each rank to each other one, as
// in simple, and no payload: what a rank's group has stored before the barrier, anywhere, is seen by every
// rank's group after it.
//
// Orderings: the group's accesses before < sync < [S1] release store of the flag (system scope) pairs with
// [S2] acquire load < sync < the group's accesses after. It uses the flags and the epochs of simple, so the
// two may take turns.
#pragma once

#include <cstdint>

#include <nearlight/detail/exec/fn.hpp>
#include <nearlight/detail/protocol/session.hpp>
#include <nearlight/detail/protocol/simple.hpp>

namespace nearlight::protocol {

// All threads of the group call it. When the wait fails the session has failed.
template <class SessionT>
NL_FN void flag_barrier(SessionT& session) {
  const std::uint32_t epoch = session.begin_epoch();
  simple_publish(session, epoch);     // [S1]
  simple_observe(session, epoch, 0);  // [S2]
  session.end_epoch();
}

}  // namespace nearlight::protocol
