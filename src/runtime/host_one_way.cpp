// The calls of a CPU rank that have one way.
#include "algorithm/host/fused.hpp"
#include "algorithm/host/gemv.hpp"
#include "runtime/checks.hpp"
#include "runtime/host_communicator.hpp"
#include "runtime/nvtx_range.hpp"
#include "runtime/one_way.hpp"

namespace nearlight::runtime {

namespace {

void run(const algorithm::host::AllReduceCall& all, const FusedCall& call, const route::FusedRoute& route) {
  algorithm::host::fused({all, rows_of(call, route)});
}

void run(const algorithm::host::AllReduceCall& all, const GemvCall& call, const route::Route&) {
  const algorithm::host::GemvCall made{all, gemv_of(call, all.layout.nranks)};
  if (call.collective == Collective::all_gather_gemv) {
    algorithm::host::all_gather_gemv(made);
  } else {
    algorithm::host::gemv(made);
  }
}

}  // namespace

template <class OneWay>
Status HostCommunicator::one_way(const OneWay& call, Stream stream, const CallOptions& options) {
  const std::size_t count = count_of(call);
  const NvtxRange range(name_of(call.collective), count * size_of(call.type));
  calls_.begin(call.collective, count, call.type, ReduceOp::sum);
  if (retry_.attempts == 0 || nranks() == 1) return calls_.end(run_one_way(call, stream, options));
  return calls_.end(run_with_retries(can_repeat(call), [&](bool first) {
    CallOptions without_hooks = options;
    if (!first) without_hooks.delay_ns = without_hooks.packet_fault = 0;
    return run_one_way(call, stream, without_hooks);
  }));
}

template <class OneWay>
Status HostCommunicator::run_one_way(const OneWay& call, Stream stream, const CallOptions& options) {
  if (failed()) return status();
  NL_TRY(check_no_stream(stream));
  NL_TRY(check_call(call, nranks()));
  const std::size_t count = count_of(call);
  NL_TRY_ASSIGN(const auto route, route_of_one_way(call, facts(count, call.type, ReduceOp::sum), options));
  if (check_) {
    Call compared = to_compare(call);
    compared.path = path_.load(std::memory_order_relaxed);
    compared.options = options;
    NL_TRY(compare_calls(compared));
  }
  if (call.tokens == 0) return {};
  calls_.take(route.algorithm, route.protocol);
  route_log_.note(call.collective, count, call.type, ReduceOp::sum, nranks(), route);
  run({.region = heap_->view().base + heap_offset_,
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
      call, route);
  return own_outcome(call.collective);
}

Status HostCommunicator::fused(const FusedCall& call, Stream stream, const CallOptions& options) {
  return one_way(call, stream, options);
}

Status HostCommunicator::gemv(const GemvCall& call, Stream stream, const CallOptions& options) {
  return one_way(call, stream, options);
}

Result<route::FusedRoute> HostCommunicator::explain_fused(const FusedCall& call,
                                                          const CallOptions& options) const {
  return route_of_one_way(call, facts(count_of(call), call.type, ReduceOp::sum), options);
}

Result<route::Route> HostCommunicator::explain_gemv(const GemvCall& call, const CallOptions& options) const {
  return route_of_one_way(call, facts(count_of(call), call.type, ReduceOp::sum), options);
}

}  // namespace nearlight::runtime
