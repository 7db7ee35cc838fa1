// The collectives by parts of a GPU rank.
#include <algorithm>
#include <utility>

#include "algorithm/cuda/parts.hpp"
#include "route/parts.hpp"
#include "runtime/call_route.hpp"
#include "runtime/checks.hpp"
#include "runtime/cuda_call.hpp"
#include "runtime/cuda_communicator.hpp"
#include "runtime/named_buffer.hpp"
#include "runtime/nvtx_range.hpp"

namespace nearlight::runtime {

Result<route::Route> CudaCommunicator::explain(const CollectiveCall& call, const CallOptions& options) const {
  route::Facts facts = this->facts(call.count, call.type, call.op.op);
  // What is nearlight's affair alone.
  if (options.delay_point != 0 || options.grid != 0 || options.threads != 0)
    facts = route::without_nccl(facts);
  if (options.packet_fault != 0) return failure(Code::unsupported, "packet_fault: CPU ranks only");
  if (options.first_slot != 0) return failure(Code::unsupported, "first_slot: for all_reduce alone");
  NL_TRY_ASSIGN(route::Route route, route_of_parts(call, facts, options));
  if (nranks() == 1 || route.algorithm == route::Algorithm::nccl) return route;
  NL_TRY(apply_shape(options, route));
  if (options.threads != 0) route.run_threads = route.threads;
  const std::uint32_t room = route.protocol == route::Protocol::sentinel ? layout_.packets : layout_.slots;
  if (route.protocol != route::Protocol::simple && route.threads * std::max(1u, route.held) > room) {
    return failure(Code::invalid_argument,
                   "threads: %u threads of %u units need more than the %u of a region", route.threads,
                   std::max(1u, route.held), room);
  }
  return route;
}

Status CudaCommunicator::collective(const CollectiveCall& given, Stream stream, const CallOptions& options) {
  const CollectiveCall call = is_uneven(given.collective) ? complete(given, nranks()) : given;
  const NvtxRange range(name_of(call.collective), call.count * size_of(call.type));
  calls_.begin(call.collective, call.count, call.type, call.op.op, input_bytes(call, rank(), nranks()));
  bool capturing = false;
  Status outcome = enqueue_collective(call, stream, options, capturing);
  return calls_.end(std::move(outcome), capturing);
}

Status CudaCommunicator::enqueue_alone(const void* send, void* recv, std::size_t count, DataType type,
                                       const Reduction& op, cudaStream_t stream, bool& capturing) {
  calls_.take(route::Algorithm::copy, route::Route().protocol);
  NL_TRY_ASSIGN(capturing, CudaControl::is_capturing(stream));
  if (op.op == ReduceOp::premul_sum) {
    return algorithm::cuda::launch_alone(args_of(send, recv, count, op, {}), type, max_ctas_, stream);
  }
  if (recv == send) return {};
  const std::size_t bytes = count * size_of(type);
  // CUDA's own copy is not for memory that overlaps (CallOptions).
  if (overlap({"send", "", send, bytes}, {"recv", "", recv, bytes}))
    return copy_by_kernel(recv, send, bytes, stream);
  return cuda_status("cudaMemcpyAsync", cudaMemcpyAsync(recv, send, bytes, cudaMemcpyDeviceToDevice, stream));
}

Status CudaCommunicator::enqueue_collective(const CollectiveCall& call, Stream stream_pointer,
                                            const CallOptions& options, bool& capturing) {
  const bool own_way_failed = this->own_way_failed();
  if (own_way_failed) NL_TRY(may_go_elsewhere(options.algorithm.value_or(way())));
  NL_TRY(check_call(call, rank_, nranks(), may_overlap(options)));
  const bool agrees = agrees_on_most(call.collective);
  if (call.count == 0 && !agrees) return {};
  const DeviceGuard guard(device_);
  NL_TRY(guard.status());
  const auto stream = static_cast<cudaStream_t>(stream_pointer);
  const CallBytes bytes = bytes_of(call, rank_, nranks());
  NL_TRY(arguments_.check(call.send, bytes.send, call.recv, bytes.recv, stream));
  const bool reduces = is_reduction(call.collective);
  if (nranks() == 1) {
    const algorithm::Parts parts = parts_of(call, 0, 1);
    const std::size_t element = reduces ? size_of(call.type) : 1;
    if (parts.send[0].count == 0) return {};
    return enqueue_alone(static_cast<const char*>(call.send) + parts.send[0].at * element,
                         static_cast<char*>(call.recv) + parts.recv[0].at * element, parts.send[0].count,
                         reduces ? call.type : DataType::u8, reduces ? call.op : ReduceOp::sum, stream,
                         capturing);
  }
  NL_TRY_ASSIGN(const route::Route route, explain(call, options));
  if (own_way_failed && !algorithm::is_elsewhere(route.algorithm)) return status();
  calls_.take(route.algorithm, route.protocol);
  route_log_.note(call.collective, call.count, call.type, call.op.op, nranks(), route);
  NL_TRY_ASSIGN(capturing, CudaControl::retain_for_capture(control_, stream));
  if (check_) {
    NL_TRY(compare_calls({.collective = call.collective,
                          .count = call.count,
                          .type = call.type,
                          .op = call.op.op,
                          .options = options,
                          .root = call.root,
                          .counts = counts_of(call, nranks())},
                         stream, capturing));
  }
  if (route.algorithm == route::Algorithm::nccl) return hand_over(call, stream, capturing);
  algorithm::cuda::PartsArgs args{args_of(call.send, call.recv, 0, call.op, options),
                                  parts_of(call, rank_, nranks())};
  args.all.collective = static_cast<std::uint32_t>(call.collective);
  args.parts.span = span_of(facts(call.count, call.type, call.op.op), route, agrees);
  const algorithm::cuda::PartsShape shape{reduces,
                                          call.type,
                                          route.protocol,
                                          route.grid,
                                          route.run_threads,
                                          options.delay_point != 0,
                                          tracer_.has_value() && !options.untraced,
                                          agrees};
  return launched(algorithm::cuda::launch_parts(args, shape, stream), stream, capturing);
}

}  // namespace nearlight::runtime
