#include "algorithm/cuda/all_reduce_kernels.cuh"
#include "algorithm/two_shot_atomic.hpp"

namespace nearlight::algorithm::cuda {

namespace {

// Any number of ranks, sum or avg; the threads of a CTA are whole warps.
template <class T>
__global__ void __launch_bounds__(kMaxThreads, 1)
    all_reduce_two_shot_atomic(const __grid_constant__ AllReduceArgs args) {
  const std::uint32_t cta = exec::cta_index();
  const exec::CtaCoop coop;
  const auto region = region_of<protocol::kMaxRanks>(args, cta);
  const Buffer<CudaSpace, T> input(const_cast<void*>(args.send), args.count), output(args.recv, args.count);
  State& state = reinterpret_cast<State*>(args.states)[cta];
  exec::wait_for_previous_kernel();
  exec::allow_dependent_launch(args.late);
  protocol::Session session(region, coop, state, control_of(args), args.first_region + cta, args.collective);
  two_shot_atomic(session, {cta, exec::cta_count()}, input, output, NoDelay{},
                  LineSum<CudaSpace, T>{args.op == ReduceOp::avg});
  session.close();
}

}  // namespace

Kernel pick_atomic(DataType type, const Pick& pick) {
  if (pick.algorithm != Algorithm::two_shot_atomic || pick.nranks < 2 || pick.variant != Variant::once ||
      !reduces(pick.algorithm, type, pick.op)) {
    return nullptr;
  }
  switch (type) {
    case DataType::f32:
      return all_reduce_two_shot_atomic<float>;
    case DataType::f16:
      return all_reduce_two_shot_atomic<F16>;
    default:
      return all_reduce_two_shot_atomic<Bf16>;
  }
}

}  // namespace nearlight::algorithm::cuda
