// The sends and receives of a CPU rank.
#include <cstring>
#include <utility>

#include "algorithm/host/messages.hpp"
#include "runtime/checks.hpp"
#include "runtime/host_communicator.hpp"
#include "runtime/nvtx_range.hpp"

namespace nearlight::runtime {

route::Facts HostCommunicator::message_facts(std::size_t count, DataType type) const {
  return facts(count, type, ReduceOp::sum);
}

Result<route::Route> HostCommunicator::explain_message(const MessageCall& message,
                                                       const CallOptions& options) const {
  return route_of_message(message_facts(message.count, message.type), options);
}

Status HostCommunicator::messages(std::span<const MessageCall> group, Stream stream,
                                  const CallOptions& options) {
  const MessageBytes bytes = bytes_of(group);
  const NvtxRange range(name_of(Collective::send_recv), bytes.sent + bytes.received);
  calls_.begin(Collective::send_recv, bytes.sent + bytes.received, DataType::u8, ReduceOp::sum, bytes.sent);
  return calls_.end(run_messages(group, stream, options));
}

Status HostCommunicator::run_messages(std::span<const MessageCall> group, Stream stream,
                                      const CallOptions& options) {
  if (failed()) return status();
  NL_TRY(check_no_stream(stream));
  for (const MessageCall& message : group) NL_TRY(check_message(message, nranks()));
  NL_TRY(check_together(group, rank(), options.may_overlap && !check_));
  const auto facts_of = [this](std::size_t count, DataType type) { return message_facts(count, type); };
  NL_TRY_ASSIGN(const MessagePlan plan, plan_messages(group, rank(), nranks(), facts_of, options));
  // They may overlap (CallOptions).
  for (const MessagePlan::Copy& copy : plan.copies) std::memmove(copy.to, copy.from, copy.bytes);
  if (plan.lanes == 0) {
    if (!plan.copies.empty()) calls_.take(route::Algorithm::copy, route::Route().protocol);
    return {};
  }
  calls_.take(plan.route.algorithm, plan.route.protocol);
  route_log_.note(Collective::send_recv, group.front().count, group.front().type, ReduceOp::sum, nranks(),
                  plan.route);
  algorithm::host::exchange_messages(
      {.pipes = heap_->view().base + pipes_at_,
       .stride = heap_->view().stride,
       .rank = rank(),
       .layout = pipe_layout(layout_),
       .state = &state_,
       .ends = pipe_ends_.data(),
       .control = control(),
       .collective = static_cast<std::uint32_t>(Collective::send_recv),
       .messages = plan.messages.data(),
       .queues = plan.queues.data(),
       .queue_count = plan.queue_count,
       .told = check_,
       .turns = tracer_ && !options.untraced ? turns_.data() : nullptr,
       .delay = {static_cast<algorithm::DelayPoint>(options.delay_point), options.delay_ns},
       .packet_fault = {static_cast<algorithm::host::PacketFault::Kind>(options.packet_fault),
                        options.faulty_packet}});
  return own_outcome(Collective::send_recv);
}

void HostCommunicator::rest_pipes(std::uint32_t turn) {
  char* const mine = heap_->view().mine() + pipes_at_;
  const protocol::RegionLayout layout = pipe_layout(layout_);
  std::memset(mine, 0, algorithm::pipe_bytes(layout));
  pipe_ends_ = {};
  for (auto& end : pipe_ends_) {
    for (int carrier = 0; carrier < algorithm::kCarriers; ++carrier)
      end.sent[carrier] = end.received[carrier] = turn;
  }
  // What has been paid for is not to be paid again.
  const algorithm::FlatPipes<exec::HostSpace> pipes(heap_->view().base + pipes_at_, heap_->view().stride,
                                                    rank(), layout);
  for (int peer = 0; peer < nranks(); ++peer) {
    for (int carrier = 0; carrier < algorithm::kCarriers; ++carrier)
      pipes.credit(rank(), peer, carrier) = turn;
  }
}

}  // namespace nearlight::runtime
