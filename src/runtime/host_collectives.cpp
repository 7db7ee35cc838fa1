// The collectives by parts of a CPU rank.
#include <cstdint>
#include <cstring>
#include <utility>

#include "algorithm/host/parts.hpp"
#include "route/parts.hpp"
#include "runtime/call_route.hpp"
#include "runtime/checks.hpp"
#include "runtime/host_communicator.hpp"
#include "runtime/nvtx_range.hpp"

namespace nearlight::runtime {

Result<route::Route> HostCommunicator::explain(const CollectiveCall& call, const CallOptions& options) const {
  return route_of_parts(call, facts(call.count, call.type, call.op.op), options);
}

Status HostCommunicator::collective(const CollectiveCall& given, Stream stream, const CallOptions& options) {
  const CollectiveCall call = is_uneven(given.collective) ? complete(given, nranks()) : given;
  const NvtxRange range(name_of(call.collective), call.count * size_of(call.type));
  calls_.begin(call.collective, call.count, call.type, call.op.op, input_bytes(call, rank(), nranks()));
  if (retry_.attempts == 0 || nranks() == 1) return calls_.end(run_collective(call, stream, options));
  const CallBytes bytes = bytes_of(call, rank(), nranks());
  const auto from = reinterpret_cast<std::uintptr_t>(call.send),
             to = reinterpret_cast<std::uintptr_t>(call.recv);
  const bool apart = bytes.send == 0 || bytes.recv == 0 || from + bytes.send <= to || to + bytes.recv <= from;
  return calls_.end(run_with_retries(apart, [&](bool first) {
    CallOptions without_hooks = options;
    if (!first) without_hooks.delay_ns = without_hooks.packet_fault = 0;
    return run_collective(call, stream, without_hooks);
  }));
}

Status HostCommunicator::run_collective(const CollectiveCall& call, Stream stream,
                                        const CallOptions& options) {
  if (failed()) return status();
  NL_TRY(check_no_stream(stream));
  NL_TRY(check_call(call, rank(), nranks(), options.may_overlap && !check_));
  if (check_) {
    NL_TRY(compare_calls({.collective = call.collective,
                          .count = call.count,
                          .type = call.type,
                          .op = call.op.op,
                          .path = path_.load(std::memory_order_relaxed),
                          .options = options,
                          .root = call.root,
                          .counts = counts_of(call, nranks())}));
  }
  if (call.count == 0 && !agrees_on_most(call.collective)) return {};
  const bool reduces = is_reduction(call.collective);
  const bool hooked = options.delay_point != 0 || options.packet_fault != 0;
  if (hooked && reduces && (call.type != DataType::f32 || call.op.op == ReduceOp::premul_sum)) {
    return failure(Code::invalid_argument, "%s: of reductions by parts for float alone, and not for %s %s",
                   options.delay_point != 0 ? "delay_point" : "packet_fault", name_of(call.type),
                   name_of(call.op.op));
  }
  NL_TRY_ASSIGN(const route::Route route, explain(call, options));
  calls_.take(route.algorithm, route.protocol);
  const algorithm::Parts parts = parts_of(call, rank(), nranks());
  if (nranks() == 1) {
    const std::size_t element = reduces ? size_of(call.type) : 1, count = parts.send[0].count;
    const char* const send = static_cast<const char*>(call.send) + parts.send[0].at * element;
    char* const recv = static_cast<char*>(call.recv) + parts.recv[0].at * element;
    if (call.op.op == ReduceOp::premul_sum && reduces) {
      algorithm::host::multiply_alone(call.type, send, recv, count, call.op.factor->bits);
    } else if (recv != send && count != 0) {
      std::memmove(recv, send, count * element);  // they may overlap (CallOptions)
    }
    return {};
  }
  route_log_.note(call.collective, call.count, call.type, call.op.op, nranks(), route);
  algorithm::host::PartsCall parts_call{
      .all = {.region = heap_->view().base + heap_offset_,
              .stride = heap_->view().stride,
              .rank = rank(),
              .layout = layout_,
              .state = &state_,
              .control = control(),
              .collective = static_cast<std::uint32_t>(call.collective),
              .type = call.type,
              .op = call.op.op,
              .protocol = route.protocol,
              .send = call.send,
              .recv = call.recv,
              .count = 0,
              .factor = call.op.factor ? call.op.factor->bits : 0,
              .trace = tracer_ && !options.untraced ? ring_.data() : nullptr,
              .delay = {static_cast<algorithm::DelayPoint>(options.delay_point), options.delay_ns},
              .packet_fault = {static_cast<algorithm::host::PacketFault::Kind>(options.packet_fault),
                               options.faulty_packet}},
      .parts = parts,
      .agrees = agrees_on_most(call.collective)};
  parts_call.parts.span = span_of(facts(call.count, call.type, call.op.op), route, parts_call.agrees);
  if (reduces) {
    algorithm::host::reduce_parts(parts_call);
  } else {
    algorithm::host::move_parts(parts_call);
  }
  return own_outcome(call.collective);
}

}  // namespace nearlight::runtime
