// The fused AllReduce of a GPU rank.
#include "algorithm/cuda/fused.hpp"
#include "runtime/call_route.hpp"
#include "runtime/checks.hpp"
#include "runtime/cuda_call.hpp"
#include "runtime/cuda_communicator.hpp"
#include "runtime/nvtx_range.hpp"

namespace nearlight::runtime {

Result<route::FusedRoute> CudaCommunicator::explain_fused(const FusedCall& call,
                                                          const CallOptions& options) const {
  return route_of_fused(call, facts(call.tokens * call.hidden, call.type, ReduceOp::sum), options);
}

Status CudaCommunicator::fused(const FusedCall& call, Stream stream, const CallOptions& options) {
  const std::size_t count = call.tokens * call.hidden;
  const NvtxRange range(name_of(call.collective), count * size_of(call.type));
  calls_.begin(call.collective, count, call.type, ReduceOp::sum);
  bool capturing = false;
  Status outcome = enqueue_fused(call, stream, options, capturing);
  return calls_.end(std::move(outcome), capturing);
}

Status CudaCommunicator::enqueue_fused(const FusedCall& call, Stream stream_pointer,
                                       const CallOptions& options, bool& capturing) {
  if (own_way_failed()) return status();
  NL_TRY(check_fused(call));
  if (call.tokens == 0 && !check_) return {};
  const DeviceGuard guard(device_);
  NL_TRY(guard.status());
  const auto stream = static_cast<cudaStream_t>(stream_pointer);
  const Call checked{.collective = call.collective,
                     .count = call.tokens * call.hidden,
                     .type = call.type,
                     .op = ReduceOp::sum,
                     .options = options,
                     .rows = runtime::rows_of(call)};
  if (call.tokens == 0) {  // the others may have some
    NL_TRY_ASSIGN(capturing, CudaControl::is_capturing(stream));
    return compare_calls(checked, stream, capturing);
  }
  NL_TRY(arguments_.check(buffers_of(call), stream));
  NL_TRY_ASSIGN(const route::FusedRoute route, explain_fused(call, options));
  const std::size_t count = call.tokens * call.hidden;
  calls_.take(route.route.algorithm, route.route.protocol);
  route_log_.note(call.collective, count, call.type, ReduceOp::sum, nranks(), route.route);
  NL_TRY_ASSIGN(capturing, CudaControl::retain_for_capture(control_, stream));
  if (check_) {
    NL_TRY(compare_calls(checked, stream, capturing));
  }
  const algorithm::cuda::FusedArgs args{args_of_region(call.collective), rows_of(call, route)};
  const algorithm::cuda::FusedShape shape{call.type,           route.route.grid,
                                          route.route.threads, route.route.held,
                                          route.once,          tracer_.has_value() && !options.untraced};
  return launched(algorithm::cuda::launch_fused(args, shape, stream), stream, capturing);
}

}  // namespace nearlight::runtime
