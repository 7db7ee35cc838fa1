#include "runtime/kernel_loop.hpp"

#include "exec/host_space.hpp"
#if NEARLIGHT_HAS_CUDA
#include "runtime/cuda_communicator.hpp"
#endif

namespace nearlight::runtime {

Status run_all_reduce_loop(Communicator& communicator, const void* send, void* recv, std::size_t count, DataType type,
                           ReduceOp op, std::uint32_t iterations, std::vector<double>& op_ns, Stream stream,
                           const CallOptions& options) {
#if NEARLIGHT_HAS_CUDA
  if (auto* const cuda = dynamic_cast<CudaCommunicator*>(&communicator)) {
    return cuda->all_reduce_loop(send, recv, count, type, op, iterations, op_ns, stream, options);
  }
#endif
  op_ns.assign(iterations, 0.0);
  std::uint64_t before_ns = exec::HostSpace::now_ns();
  for (std::uint32_t i = 0; i < iterations; ++i) {
    NL_TRY(communicator.all_reduce(send, recv, count, type, op, stream, options));
    const std::uint64_t now_ns = exec::HostSpace::now_ns();
    op_ns[i] = static_cast<double>(now_ns - before_ns);
    before_ns = now_ns;
  }
  return {};
}

}  // namespace nearlight::runtime
