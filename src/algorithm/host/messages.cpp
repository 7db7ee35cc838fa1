#include "algorithm/host/messages.hpp"

#include <array>
#include <optional>
#include <type_traits>

#include "algorithm/host/bulk.hpp"
#include "algorithm/traced_turns.hpp"

namespace nearlight::algorithm::host {

namespace {

// hooks_of(queue): those of that end.
template <class Cells, class Space, class HooksOf>
void exchange(const MessagesCall& call, protocol::RegionState<Space>& state, PipeState<Space>* ends,
              const protocol::Control<Space>& control, const HooksOf& hooks_of) {
  using Hooks = std::remove_cvref_t<decltype(hooks_of(call.queues[0]))>;
  using SessionT = protocol::Session<FlatPipes<Space>, exec::SoloCoop>;
  using End = PipeEnd<1, Cells, SessionT, Hooks>;
  SessionT session(FlatPipes<Space>(call.pipes, call.stride, call.rank, call.layout), exec::SoloCoop{}, state,
                   control, 0, call.collective);
  std::array<std::optional<Hooks>, kMostQueues> hooks;
  std::array<std::optional<End>, kMostQueues> at_work;
  std::array<End*, kMostQueues> each{};
  for (int i = 0; i < call.queue_count; ++i) {
    const auto place = static_cast<std::size_t>(i);
    each[place] = &at_work[place].emplace(session, ends[call.queues[i].peer], call.queues[i], call.messages,
                                          0u, call.told, hooks[place].emplace(hooks_of(call.queues[i])));
  }
  run_ends(session, each.data(), call.queue_count);
  for (int i = 0; i < call.queue_count; ++i) each[static_cast<std::size_t>(i)]->close();
}

}  // namespace

void exchange_messages(const MessagesCall& call) {
  using exec::HostSpace;
  if (call.delay.point == DelayPoint::none && call.packet_fault.kind == PacketFault::Kind::none) {
    using Cells = Bulk<std::uint8_t, ReduceOp::sum>;
    if (call.turns == nullptr) {
      return exchange<Cells>(call, *call.state, call.ends, call.control,
                             [](const PipeQueue&) { return NoDelay{}; });
    }
    const std::uint64_t start_ns = HostSpace::now_ns();
    return exchange<Cells>(call, *call.state, call.ends, call.control, [&](const PipeQueue& queue) {
      const std::size_t ring = trace::turn_ring_of(0, call.layout.nranks, queue.peer, queue.sends != 0);
      return TracedTurns<HostSpace>(call.turns + ring * trace::kTurnLinesOnCpu, trace::kTurnLinesOnCpu, true,
                                    start_ns);
    });
  }
  const HookedSpace::Planted planted(call.packet_fault);
  protocol::RegionState<HookedSpace> state{call.state->epoch, call.state->failed, {}};
  std::array<PipeState<HookedSpace>, protocol::kMaxRanks> ends{};
  const auto ranks = static_cast<std::size_t>(call.layout.nranks);
  for (std::size_t peer = 0; peer < ranks; ++peer) {
    for (int carrier = 0; carrier < kCarriers; ++carrier) {
      ends[peer].sent[carrier] = call.ends[peer].sent[carrier];
      ends[peer].received[carrier] = call.ends[peer].received[carrier];
    }
  }
  const protocol::Control<HookedSpace> control = hooked(call.control);
  exchange<HookedSpace::Cells<std::uint8_t, ReduceOp::sum>>(call, state, ends.data(), control,
                                                            [&](const PipeQueue&) { return call.delay; });
  call.state->failed = state.failed;
  for (std::size_t peer = 0; peer < ranks; ++peer) {
    for (int carrier = 0; carrier < kCarriers; ++carrier) {
      call.ends[peer].sent[carrier] = ends[peer].sent[carrier];
      call.ends[peer].received[carrier] = ends[peer].received[carrier];
    }
  }
}

}  // namespace nearlight::algorithm::host
