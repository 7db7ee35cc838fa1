// The GEMV of a CPU rank, with its AllReduce, or with an AllGather in front.
#include "algorithm/host/gemv.hpp"
#include "runtime/call_route.hpp"
#include "runtime/checks.hpp"
#include "runtime/host_communicator.hpp"
#include "runtime/nvtx_range.hpp"

namespace nearlight::runtime {

Result<route::Route> HostCommunicator::explain_gemv(const GemvCall& call, const CallOptions& options) const {
  return route_of_gemv(call, facts(count_of(call), call.type, ReduceOp::sum), options);
}

Status HostCommunicator::gemv(const GemvCall& call, Stream stream, const CallOptions& options) {
  const std::size_t count = count_of(call);
  const NvtxRange range(name_of(call.collective), count * size_of(call.type));
  calls_.begin(call.collective, count, call.type, ReduceOp::sum);
  if (retry_.attempts == 0 || nranks() == 1) return calls_.end(run_gemv(call, stream, options));
  // No output is in the place of an input.
  return calls_.end(run_with_retries(true, [&](bool first) {
    CallOptions without_hooks = options;
    if (!first) without_hooks.delay_ns = without_hooks.packet_fault = 0;
    return run_gemv(call, stream, without_hooks);
  }));
}

Status HostCommunicator::run_gemv(const GemvCall& call, Stream stream, const CallOptions& options) {
  if (failed()) return status();
  NL_TRY(check_no_stream(stream));
  NL_TRY(check_gemv(call, nranks()));
  NL_TRY_ASSIGN(const route::Route route, explain_gemv(call, options));
  const std::size_t count = count_of(call);
  if (check_) {
    NL_TRY(compare_calls({.collective = call.collective,
                          .count = count,
                          .type = call.type,
                          .op = ReduceOp::sum,
                          .path = path_.load(std::memory_order_relaxed),
                          .options = options,
                          .out_size = call.out}));
  }
  if (call.tokens == 0) return {};
  calls_.take(route.algorithm, route.protocol);
  route_log_.note(call.collective, count, call.type, ReduceOp::sum, nranks(), route);
  const algorithm::host::GemvCall made{
      .all = {.region = heap_->view().base + heap_offset_,
              .stride = heap_->view().stride,
              .rank = rank(),
              .layout = layout_,
              .state = &state_,
              .control = control(),
              .collective = static_cast<std::uint32_t>(call.collective),
              .type = call.type,
              .op = ReduceOp::sum,
              .protocol = route.protocol,
              .send = call.input,
              .recv = call.output,
              .count = 0,
              .trace = tracer_ && !options.untraced ? ring_.data() : nullptr,
              .delay = {static_cast<algorithm::DelayPoint>(options.delay_point), options.delay_ns},
              .packet_fault = {static_cast<algorithm::host::PacketFault::Kind>(options.packet_fault),
                               options.faulty_packet}},
      .gemv = gemv_of(call, nranks())};
  if (call.collective == Collective::all_gather_gemv) {
    algorithm::host::all_gather_gemv(made);
  } else {
    algorithm::host::gemv(made);
  }
  return own_outcome(call.collective);
}

}  // namespace nearlight::runtime
