// The kernels of the fused AllReduce; each .cu file beside it instantiates one type.
#pragma once

#include "algorithm/cuda/all_reduce_kernels.cuh"
#include "algorithm/cuda/fused.hpp"
#include "algorithm/fused_rows.hpp"
#include "exec/cuda_team.cuh"

namespace nearlight::algorithm::cuda {

using FusedKernel = void (*)(const FusedArgs);

// kHeld, kOnce: see HeldRows; 0 held: streamed. As in the other kernels, nothing that another kernel may have
// written is read before the wait, weights included.
template <class T, int kMax, int kHeld, bool kOnce, Variant variant>
__global__ void __launch_bounds__(kMaxThreads, 1) fused_rows(const __grid_constant__ FusedArgs args) {
  using Math = PackMath<CudaSpace, T, ReduceOp::sum>;
  using Rewrite = SentinelCell<T>;
  using Finish = RowFinish<CudaSpace, T>;
  const AllReduceArgs& all = args.all;
  const std::uint32_t cta = exec::cta_index(), spread = args.rows.spread;
  const RowShare share{cta / spread, exec::cta_count() / spread, cta % spread, spread};
  const exec::CtaCoop coop;
  const auto region = region_of<kMax>(all, cta);
  const auto control = control_of(all);
  const Finish finish(args.rows);
  State* state = reinterpret_cast<State*>(all.states) + cta;
  exec::keep(state);
  exec::CtaTeam team(spread);
  if (args.rows.normalises) team.begin();

  if constexpr (kHeld > 0) {
    const HeldRows<Math, Rewrite, kMax, kHeld, kOnce, Region<kMax>, Finish> work(region, coop.thread_rank(),
                                                                                 coop.size(), share, finish);
    exec::wait_for_previous_kernel(work.addresses() | exec::address_bits(state));
    exec::allow_dependent_launch(all.late);
    protocol::Session session(region, coop, *state, control, all.first_region + cta, all.collective);
    work.run(session, team, hooks_of<variant>(all, cta, session.epoch()));
    session.close();
  } else {
    exec::wait_for_previous_kernel();
    exec::allow_dependent_launch(all.late);
    protocol::Session session(region, coop, *state, control, all.first_region + cta, all.collective);
    streamed_rows<Math, Rewrite, kMax>(session, team, share, finish,
                                       hooks_of<variant>(all, cta, session.epoch()));
    session.close();
  }
}

struct FusedPick {
  int nranks;
  std::uint32_t held;
  bool once;
  bool traced;
};

// null when there is no such kernel.
template <class T, int kMax, Variant variant>
FusedKernel pick_fused_shape(const FusedPick& pick) {
  if (pick.once && pick.held == 1) return fused_rows<T, kMax, 1, true, variant>;
  if (pick.once && pick.held == 2) return fused_rows<T, kMax, 2, true, variant>;
  if (!pick.once && pick.held == 4) return fused_rows<T, kMax, 4, false, variant>;
  if constexpr (kMax == 8) {
    if (!pick.once && pick.held == 0) return fused_rows<T, kMax, 0, false, variant>;
  }
  return nullptr;
}

template <class T>
FusedKernel pick_fused(const FusedPick& pick) {
  if (pick.traced) {
    if constexpr (std::is_same_v<T, Bf16>) return pick_fused_shape<T, 8, Variant::traced>(pick);
  }
  // One rank has nobody to send to, which the kernels of two do not know.
  if (pick.held == 0 || pick.nranks == 1 || pick.nranks > 4)
    return pick_fused_shape<T, 8, Variant::once>(pick);
  if (pick.nranks == 2) return pick_fused_shape<T, 2, Variant::once>(pick);
  return pick_fused_shape<T, 4, Variant::once>(pick);
}

FusedKernel pick_fused_bf16(const FusedPick& pick);
FusedKernel pick_fused_f16(const FusedPick& pick);

}  // namespace nearlight::algorithm::cuda
