// Opens the session of a call by parts in the space, and with the hooks, that it asks for.
#pragma once

#include "algorithm/host/parts.hpp"
#include "algorithm/host/region.hpp"
#include "algorithm/traced.hpp"

namespace nearlight::algorithm::host {

template <class Space>
using AnyRegion = protocol::FlatRegion<Space>;

inline bool has_test_hooks(const AllReduceCall& call) {
  return call.delay.point != DelayPoint::none || call.packet_fault.kind != PacketFault::Kind::none;
}

// work(session, hooks); the session is closed behind it.
template <class Work>
void with_session(const AllReduceCall& call, Work&& work) {
  using exec::HostSpace;
  protocol::Session session(AnyRegion<HostSpace>(call.region, call.stride, call.rank, call.layout),
                            exec::SoloCoop{}, *call.state, call.control, 0, call.collective);
  if (call.trace != nullptr) {
    work(session, Traced<HostSpace>(call.trace, trace::kLinesOnCpu, call.collective, session.epoch(), true));
  } else {
    work(session, NoDelay{});
  }
  session.close();
}

// The same where what is sent can be lost or spoilt.
template <class Work>
void with_hooked_session(const AllReduceCall& call, Work&& work) {
  const HookedSpace::Planted planted(call.packet_fault);
  protocol::RegionState<HookedSpace> state{call.state->epoch, call.state->failed, {}};
  const protocol::Control<HookedSpace> control = hooked(call.control);
  {
    protocol::Session session(AnyRegion<HookedSpace>(call.region, call.stride, call.rank, call.layout),
                              exec::SoloCoop{}, state, control, 0, call.collective);
    work(session, call.delay);
    session.close();
  }
  call.state->epoch = state.epoch;
  call.state->failed = state.failed;
}

}  // namespace nearlight::algorithm::host
