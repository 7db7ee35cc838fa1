// The sends and receives of a GPU rank.
#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "algorithm/cuda/messages.hpp"
#include "runtime/checks.hpp"
#include "runtime/cuda_call.hpp"
#include "runtime/cuda_communicator.hpp"
#include "runtime/nvtx_range.hpp"

namespace nearlight::runtime {

route::Facts CudaCommunicator::message_facts(std::size_t count, DataType type) const {
  route::Facts facts = this->facts(count, type, ReduceOp::sum);
  facts.regions = lanes_;
  return facts;
}

Result<route::Route> CudaCommunicator::explain_message(const MessageCall& message,
                                                       const CallOptions& options) const {
  if (options.packet_fault != 0) return failure(Code::unsupported, "packet_fault: CPU ranks only");
  if (options.delay_point != 0) return failure(Code::unsupported, "delay_point: not of messages on GPUs");
  if (options.first_slot != 0) return failure(Code::unsupported, "first_slot: for all_reduce alone");
  if (options.threads != 0)
    return failure(Code::unsupported, "threads: those of messages follow from their number and size");
  return route_of_message(message_facts(message.count, message.type), options);
}

Status CudaCommunicator::messages(std::span<const MessageCall> group, Stream stream,
                                  const CallOptions& options) {
  return make_messages(group, stream, options, nullptr);
}

Status CudaCommunicator::begin_messages(std::span<const MessageCall> group, Stream stream, Rest& rest) {
  rest = {};
  return make_messages(group, stream, {}, &rest);
}

Status CudaCommunicator::make_messages(std::span<const MessageCall> group, Stream stream,
                                       const CallOptions& options, Rest* rest) {
  const MessageBytes bytes = bytes_of(group);
  const NvtxRange range(name_of(Collective::send_recv), bytes.sent + bytes.received);
  calls_.begin(Collective::send_recv, bytes.sent + bytes.received, DataType::u8, ReduceOp::sum, bytes.sent);
  bool capturing = false;
  Status outcome = enqueue_messages(group, stream, options, capturing, rest);
  if (rest == nullptr || !*rest) return calls_.end(std::move(outcome), capturing);
  *rest = [this, second = std::move(*rest)] { return calls_.end(second()); };
  return {};
}

Status CudaCommunicator::enqueue_messages(std::span<const MessageCall> group, Stream stream_pointer,
                                          const CallOptions& options, bool& capturing, Rest* rest) {
  const bool own_way_failed = this->own_way_failed();
  if (own_way_failed) NL_TRY(may_go_elsewhere(options.algorithm.value_or(way())));
  for (const MessageCall& message : group) NL_TRY(check_message(message, nranks()));
  NL_TRY(check_together(group, rank_, may_overlap(options)));
  const DeviceGuard guard(device_);
  NL_TRY(guard.status());
  const auto stream = static_cast<cudaStream_t>(stream_pointer);
  for (const MessageCall& message : group) {
    const std::size_t bytes = message.bytes();
    NL_TRY(message.sends ? arguments_.check(message.buffer, bytes, nullptr, 0, stream)
                         : arguments_.check(nullptr, 0, message.buffer, bytes, stream));
  }
  const auto facts_of = [this](std::size_t count, DataType type) { return message_facts(count, type); };
  for (const MessageCall& message : group) {
    NL_TRY(explain_message(message, options).status());
    if (nranks() > 1) break;
  }
  NL_TRY_ASSIGN(const MessagePlan plan, plan_messages(group, rank_, nranks(), facts_of, options));
  if (plan.messages.size() > algorithm::cuda::kMostMessages &&
      plan.route.algorithm != route::Algorithm::nccl) {
    return failure(Code::unsupported, "%zu messages go together, and a kernel takes %u: make smaller groups",
                   plan.messages.size(), algorithm::cuda::kMostMessages);
  }
  if (plan.lanes == 0 && plan.copies.empty() && plan.route.algorithm != route::Algorithm::nccl) return {};
  if (own_way_failed && !algorithm::is_elsewhere(plan.route.algorithm)) return status();
  NL_TRY_ASSIGN(capturing, CudaControl::retain_for_capture(control_, stream));
  if (plan.messages.empty()) {
    calls_.take(route::Algorithm::copy, route::Route().protocol);
  } else {
    calls_.take(plan.route.algorithm, plan.route.protocol);
    route_log_.note(Collective::send_recv, group.front().count, group.front().type, ReduceOp::sum, nranks(),
                    plan.route);
  }
  if (check_ && !capturing) {
    const Status ordered = stream_order_.before(stream, rank_);
    if (!ordered.ok()) return ordered;
  }
  for (const MessagePlan::Copy& copy : plan.copies) {
    Status copied = copy_by_kernel(copy.to, copy.from, copy.bytes, stream);
    if (copied.ok()) continue;
    // The others have to learn that this rank's messages do not come.
    return plan.route.algorithm == route::Algorithm::nccl ? handed_over(std::move(copied), stream, capturing)
                                                          : launched(std::move(copied), stream, capturing);
  }
  if (plan.messages.empty()) return {};
  if (plan.route.algorithm == route::Algorithm::nccl) return hand_over(group, stream, capturing, rest);
  algorithm::cuda::MessagesHead head{};
  head.all = args_of_region(Collective::send_recv);
  head.all.regions = heap_->view().base + pipes_at_;
  head.all.region_bytes = algorithm::pipe_bytes(pipe_layout(layout_));
  head.ends = control_->pipe_ends();
  std::copy_n(plan.queues.begin(), plan.queue_count, head.queues);
  head.queue_count = static_cast<std::uint32_t>(plan.queue_count);
  head.told = check_ ? 1 : 0;
  head.turns = tracer_ && !options.untraced ? control_->turns() : nullptr;
  return launched(
      algorithm::cuda::launch_messages(head, plan.messages.data(),
                                       static_cast<std::uint32_t>(plan.messages.size()), plan.lanes, stream),
      stream, capturing);
}

Status CudaCommunicator::hand_over(std::span<const MessageCall> group, cudaStream_t stream, bool capturing,
                                   Rest* rest) {
  // What is for this rank itself has been copied.
  std::vector<MessageCall> others;
  std::copy_if(group.begin(), group.end(), std::back_inserter(others),
               [this](const MessageCall& message) { return message.peer != rank_ && message.count != 0; });
  Status outcome = before_nccl(stream);
  if (outcome.ok()) outcome = fallback_->messages(others, stream, capturing, Deadline::after(timeout_), rest);
  if (rest == nullptr || !*rest) return handed_over(std::move(outcome), stream, capturing);
  *rest = [this, second = std::move(*rest), stream] {
    const DeviceGuard guard(device_);
    return handed_over(guard.status().ok() ? second() : guard.status(), stream, false);
  };
  return {};
}

Status CudaCommunicator::rest_pipes(std::uint32_t turn) {
  const std::size_t bytes = algorithm::pipe_bytes(pipe_layout(layout_));
  char* const mine = heap_->view().part(rank_) + pipes_at_;
  NL_TRY_CUDA(cudaMemset(mine, 0, lanes_ * bytes));
  if (turn != 0) {  // a test's: what has been paid for is not to be paid again
    const std::size_t credits = pipe_layout(layout_).region_bytes();
    std::vector<std::uint32_t> words((bytes - credits) / sizeof turn, turn);
    for (std::uint32_t lane = 0; lane < lanes_; ++lane) {
      NL_TRY_CUDA(
          cudaMemcpy(mine + lane * bytes + credits, words.data(), bytes - credits, cudaMemcpyHostToDevice));
    }
  }
  NL_TRY(control_->rest_pipes(turn));
  NL_TRY_CUDA(cudaStreamSynchronize(cudaStreamLegacy));
  return {};
}

}  // namespace nearlight::runtime
