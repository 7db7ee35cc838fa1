#include <nearlight/detail/exec/cuda_space.cuh>
#include <nearlight/detail/protocol/barrier.hpp>
#include "algorithm/cuda/all_reduce_kernels.cuh"
#include "algorithm/cuda/barrier.hpp"

namespace nearlight::algorithm::cuda {

namespace {

__global__ void __launch_bounds__(32, 1) barrier(const __grid_constant__ AllReduceArgs args) {
  const exec::CtaCoop coop;
  const auto region = region_of<protocol::kMaxRanks>(args, 0);
  State& state = reinterpret_cast<State*>(args.states)[0];
  exec::wait_for_previous_kernel();
  exec::allow_dependent_launch(args.late);
  protocol::Session session(region, coop, state, control_of(args), 0, args.collective);
  protocol::flag_barrier(session);
  session.close();
}

}  // namespace

Status launch_barrier(const AllReduceArgs& args, cudaStream_t stream) {
  return enqueue(barrier, args, 1, 32, stream);
}

Status preload_barrier() { return load_kernel(barrier); }

}  // namespace nearlight::algorithm::cuda
