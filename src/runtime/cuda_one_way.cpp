// The calls of a GPU rank that have one way.
#include "algorithm/cuda/fused.hpp"
#include "algorithm/cuda/gemv.hpp"
#include "runtime/checks.hpp"
#include "runtime/cuda_call.hpp"
#include "runtime/cuda_communicator.hpp"
#include "runtime/nvtx_range.hpp"
#include "runtime/one_way.hpp"

namespace nearlight::runtime {

namespace {

// How this rank's kernels are launched, whatever the call.
struct Launch {
  bool large_shared, traced;
  cudaStream_t stream;
};

Status launch(const algorithm::cuda::AllReduceArgs& all, const FusedCall& call,
              const route::FusedRoute& route, const Launch& how) {
  return algorithm::cuda::launch_fused(
      {all, rows_of(call, route)}, {call.type, route.grid, route.threads, route.held, route.once, how.traced},
      how.stream);
}

Status launch(const algorithm::cuda::AllReduceArgs& all, const GemvCall& call, const route::Route& route,
              const Launch& how) {
  return algorithm::cuda::launch_gemv(
      {all, gemv_of(call, all.nranks), 0, 0},
      {call.type, route.grid, how.large_shared, how.traced, call.collective == Collective::all_gather_gemv},
      how.stream);
}

}  // namespace

template <class OneWay>
Status CudaCommunicator::one_way(const OneWay& call, Stream stream, const CallOptions& options) {
  const std::size_t count = count_of(call);
  const NvtxRange range(name_of(call.collective), count * size_of(call.type));
  calls_.begin(call.collective, count, call.type, ReduceOp::sum);
  bool capturing = false;
  Status outcome = enqueue_one_way(call, stream, options, capturing);
  return calls_.end(std::move(outcome), capturing);
}

template <class OneWay>
Status CudaCommunicator::enqueue_one_way(const OneWay& call, Stream stream_pointer,
                                         const CallOptions& options, bool& capturing) {
  if (own_way_failed()) return status();
  NL_TRY(check_call(call, nranks()));
  if (call.tokens == 0 && !check_) return {};
  const DeviceGuard guard(device_);
  NL_TRY(guard.status());
  const auto stream = static_cast<cudaStream_t>(stream_pointer);
  Call compared = to_compare(call);
  compared.options = options;
  if (call.tokens == 0) {  // the others may have some
    NL_TRY_ASSIGN(capturing, CudaControl::is_capturing(stream));
    return compare_calls(compared, stream, capturing);
  }
  NL_TRY(arguments_.check(buffers_of(call, nranks()), stream));
  const std::size_t count = count_of(call);
  NL_TRY_ASSIGN(const auto route, route_of_one_way(call, facts(count, call.type, ReduceOp::sum), options));
  calls_.take(route.algorithm, route.protocol);
  route_log_.note(call.collective, count, call.type, ReduceOp::sum, nranks(), route);
  NL_TRY_ASSIGN(capturing, CudaControl::retain_for_capture(control_, stream));
  if (check_) {
    NL_TRY(compare_calls(compared, stream, capturing));
  }
  const Launch how{large_shared_, tracer_.has_value() && !options.untraced, stream};
  return launched(launch(args_of_region(call.collective), call, route, how), stream, capturing);
}

Status CudaCommunicator::fused(const FusedCall& call, Stream stream, const CallOptions& options) {
  return one_way(call, stream, options);
}

Status CudaCommunicator::gemv(const GemvCall& call, Stream stream, const CallOptions& options) {
  return one_way(call, stream, options);
}

Result<route::FusedRoute> CudaCommunicator::explain_fused(const FusedCall& call,
                                                          const CallOptions& options) const {
  return route_of_one_way(call, facts(count_of(call), call.type, ReduceOp::sum), options);
}

Result<route::Route> CudaCommunicator::explain_gemv(const GemvCall& call, const CallOptions& options) const {
  return route_of_one_way(call, facts(count_of(call), call.type, ReduceOp::sum), options);
}

}  // namespace nearlight::runtime
