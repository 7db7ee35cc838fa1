// The GEMV of a GPU rank, with its AllReduce, or with an AllGather in front.
#include "algorithm/cuda/gemv.hpp"
#include "runtime/call_route.hpp"
#include "runtime/checks.hpp"
#include "runtime/cuda_call.hpp"
#include "runtime/cuda_communicator.hpp"
#include "runtime/nvtx_range.hpp"

namespace nearlight::runtime {

Result<route::Route> CudaCommunicator::explain_gemv(const GemvCall& call, const CallOptions& options) const {
  return route_of_gemv(call, facts(count_of(call), call.type, ReduceOp::sum), options);
}

Status CudaCommunicator::gemv(const GemvCall& call, Stream stream, const CallOptions& options) {
  const std::size_t count = count_of(call);
  const NvtxRange range(name_of(call.collective), count * size_of(call.type));
  calls_.begin(call.collective, count, call.type, ReduceOp::sum);
  bool capturing = false;
  Status outcome = enqueue_gemv(call, stream, options, capturing);
  return calls_.end(std::move(outcome), capturing);
}

Status CudaCommunicator::enqueue_gemv(const GemvCall& call, Stream stream_pointer, const CallOptions& options,
                                      bool& capturing) {
  if (own_way_failed()) return status();
  NL_TRY(check_gemv(call, nranks()));
  if (call.tokens == 0 && !check_) return {};
  const DeviceGuard guard(device_);
  NL_TRY(guard.status());
  const auto stream = static_cast<cudaStream_t>(stream_pointer);
  const std::size_t count = count_of(call);
  const Call checked{.collective = call.collective,
                     .count = count,
                     .type = call.type,
                     .op = ReduceOp::sum,
                     .options = options,
                     .out_size = call.out};
  if (call.tokens == 0) {  // the others may have some
    NL_TRY_ASSIGN(capturing, CudaControl::is_capturing(stream));
    return compare_calls(checked, stream, capturing);
  }
  NL_TRY(arguments_.check(buffers_of(call, nranks()), stream));
  NL_TRY_ASSIGN(const route::Route route, explain_gemv(call, options));
  calls_.take(route.algorithm, route.protocol);
  route_log_.note(call.collective, count, call.type, ReduceOp::sum, nranks(), route);
  NL_TRY_ASSIGN(capturing, CudaControl::retain_for_capture(control_, stream));
  if (check_) {
    NL_TRY(compare_calls(checked, stream, capturing));
  }
  const algorithm::cuda::GemvArgs args{args_of_region(call.collective), gemv_of(call, nranks()), 0, 0};
  const algorithm::cuda::GemvShape shape{call.type, route.grid, large_shared_,
                                         tracer_.has_value() && !options.untraced,
                                         call.collective == Collective::all_gather_gemv};
  return launched(algorithm::cuda::launch_gemv(args, shape, stream), stream, capturing);
}

}  // namespace nearlight::runtime
