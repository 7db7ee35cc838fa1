// The fused AllReduce of a CPU rank.
#include "algorithm/host/fused.hpp"
#include "runtime/call_route.hpp"
#include "runtime/checks.hpp"
#include "runtime/host_communicator.hpp"
#include "runtime/nvtx_range.hpp"

namespace nearlight::runtime {

Result<route::FusedRoute> HostCommunicator::explain_fused(const FusedCall& call,
                                                          const CallOptions& options) const {
  return route_of_fused(call, facts(call.tokens * call.hidden, call.type, ReduceOp::sum), options);
}

Status HostCommunicator::fused(const FusedCall& call, Stream stream, const CallOptions& options) {
  const std::size_t count = call.tokens * call.hidden;
  const NvtxRange range(name_of(call.collective), count * size_of(call.type));
  calls_.begin(call.collective, count, call.type, ReduceOp::sum);
  if (retry_.attempts == 0 || nranks() == 1) return calls_.end(run_fused(call, stream, options));
  return calls_.end(run_with_retries(can_repeat(call), [&](bool first) {
    CallOptions without_hooks = options;
    if (!first) without_hooks.delay_ns = without_hooks.packet_fault = 0;
    return run_fused(call, stream, without_hooks);
  }));
}

Status HostCommunicator::run_fused(const FusedCall& call, Stream stream, const CallOptions& options) {
  if (failed()) return status();
  NL_TRY(check_no_stream(stream));
  NL_TRY(check_fused(call));
  NL_TRY_ASSIGN(const route::FusedRoute route, explain_fused(call, options));
  const std::size_t count = call.tokens * call.hidden;
  if (check_) {
    NL_TRY(compare_calls({.collective = call.collective,
                          .count = count,
                          .type = call.type,
                          .op = ReduceOp::sum,
                          .path = path_.load(std::memory_order_relaxed),
                          .options = options,
                          .rows = runtime::rows_of(call)}));
  }
  if (call.tokens == 0) return {};
  calls_.take(route.route.algorithm, route.route.protocol);
  route_log_.note(call.collective, count, call.type, ReduceOp::sum, nranks(), route.route);
  algorithm::host::fused(
      {.all = {.region = heap_->view().base + heap_offset_,
               .stride = heap_->view().stride,
               .rank = rank(),
               .layout = layout_,
               .state = &state_,
               .control = control(),
               .collective = static_cast<std::uint32_t>(call.collective),
               .type = call.type,
               .op = ReduceOp::sum,
               .protocol = route.route.protocol,
               .send = call.input,
               .recv = call.output,
               .count = 0,
               .trace = tracer_ && !options.untraced ? ring_.data() : nullptr,
               .delay = {static_cast<algorithm::DelayPoint>(options.delay_point), options.delay_ns},
               .packet_fault = {static_cast<algorithm::host::PacketFault::Kind>(options.packet_fault),
                                options.faulty_packet}},
       .rows = rows_of(call, route)});
  return own_outcome(call.collective);
}

}  // namespace nearlight::runtime
