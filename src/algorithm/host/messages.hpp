// The sends and receives of one CPU rank's call, run by the calling thread: all of them at once.
#pragma once

#include <cstdint>

#include <nearlight/detail/exec/host_space.hpp>
#include "algorithm/host/hooked_space.hpp"
#include "algorithm/pipe.hpp"
#include "trace/turn_ring.hpp"

namespace nearlight::algorithm::host {

struct MessagesCall {
  char* pipes;  // rank 0's
  std::size_t stride;
  int rank;
  protocol::RegionLayout layout;
  protocol::RegionState<exec::HostSpace>* state;
  PipeState<exec::HostSpace>* ends;  // by peer
  protocol::Control<exec::HostSpace> control;
  std::uint32_t collective;
  const Message* messages;
  const PipeQueue* queues;
  int queue_count;    // at most kMostQueues
  bool told = false;  // the ranks compare their messages
  // Where times go, rings by trace::turn_ring_of(0, ...); null: nowhere.
  trace::TurnTimes* turns = nullptr;
  // Test hooks.
  Delay<exec::HostSpace> delay = {};
  PacketFault packet_fault = {};
};

// A failure is in the control's record, not in a return value.
void exchange_messages(const MessagesCall& call);

}  // namespace nearlight::algorithm::host
