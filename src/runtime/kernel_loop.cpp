#include "runtime/kernel_loop.hpp"

#include <nearlight/detail/exec/host_space.hpp>
#if NEARLIGHT_HAS_CUDA
#include "runtime/cuda_communicator.hpp"
#endif

namespace nearlight::runtime {

Status run_all_reduce_loop(Communicator& communicator, const void* send, void* recv, std::size_t count,
                           DataType type, const Reduction& op, const LoopPlan& plan,
                           std::vector<double>& op_ns, Stream stream, const CallOptions& options) {
  if (plan.samples == 0 || plan.chain == 0) {
    return failure(Code::invalid_argument, "plan: %u samples of %u operations", plan.samples, plan.chain);
  }
  if (count == 0) return failure(Code::invalid_argument, "count: a loop needs at least one element");
#if NEARLIGHT_HAS_CUDA
  if (auto* const cuda = dynamic_cast<CudaCommunicator*>(&communicator)) {
    return cuda->all_reduce_loop(send, recv, count, type, op, plan, op_ns, stream, options);
  }
#endif
  op_ns.assign(plan.samples, 0.0);
  std::uint64_t before_ns = exec::HostSpace::now_ns();
  for (double& sample : op_ns) {
    for (std::uint32_t i = 0; i < plan.chain; ++i) {
      NL_TRY(communicator.all_reduce(send, recv, count, type, op, stream, options));
    }
    const std::uint64_t now_ns = exec::HostSpace::now_ns();
    sample = static_cast<double>(now_ns - before_ns) / plan.chain;
    before_ns = now_ns;
  }
  return {};
}

Result<route::Route> explain_all_reduce_loop(const Communicator& communicator, std::size_t count,
                                             DataType type, ReduceOp op, const CallOptions& options) {
#if NEARLIGHT_HAS_CUDA
  if (const auto* const cuda = dynamic_cast<const CudaCommunicator*>(&communicator)) {
    return cuda->explain_all_reduce_loop(count, type, op, options);
  }
#endif
  return communicator.explain_all_reduce(count, type, op, options);
}

}  // namespace nearlight::runtime
