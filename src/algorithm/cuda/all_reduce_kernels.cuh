// The one-shot AllReduce kernels of one element type; each .cu file instantiates one type.
#pragma once

#include "algorithm/cuda/all_reduce.hpp"
#include "algorithm/one_shot.hpp"
#include <nearlight/detail/exec/cuda_space.cuh>

namespace nearlight::algorithm::cuda {

using exec::CudaSpace;
// Two ranks are the case where every instruction counts: their number is then a constant.
template <int kMax>
using Region = protocol::FlatRegion<CudaSpace, kMax == 2 ? 2 : 0>;
using State = protocol::RegionState<CudaSpace>;
static_assert(exec::ExecSpace<CudaSpace> && exec::Coop<exec::CtaCoop> && protocol::RegionView<Region<2>>);
static_assert(sizeof(State) == sizeof(RegionStateWords));

// Vectors of 16 bytes that a thread of the simple protocol has in flight: bounded by the registers.
template <int kMax>
inline constexpr int kSimpleUnroll = kMax <= 2 ? 4 : kMax <= 4 ? 2 : 1;

template <class T, ReduceOp op, int kMax, Protocol protocol_kind, int kHeld, class Session, class Hooks>
NL_FN void run_once(Session& session, const AllReduceArgs& args, const Hooks& hooks) {
  using Math = PackMath<CudaSpace, T, op>;
  const Share share{exec::cta_index(), exec::cta_count()};
  const Buffer<CudaSpace, T> input(const_cast<void*>(args.send), args.count), output(args.recv, args.count);
  if constexpr (protocol_kind == Protocol::ll) {
    one_shot_ll<Math, kMax, kHeld>(session, share, input, output, hooks);
  } else {
    one_shot_simple<Math, kMax, kSimpleUnroll<kMax>>(session, share, input, output, hooks);
  }
}

enum class Variant { once, loop, delayed };

template <class T, ReduceOp op, int kMax, Protocol protocol_kind, int kHeld, Variant variant>
__global__ void __launch_bounds__(kMaxThreads) all_reduce_one_shot(const __grid_constant__ AllReduceArgs args) {
  // The next kernel may take its place on the GPU at once; it waits, as we do, before it touches data.
  exec::allow_dependent_launch();
  const std::uint32_t cta = exec::cta_index();
  const protocol::RegionLayout layout{args.nranks, args.slots, args.cells};
  const Region<kMax> region(args.regions + cta * args.region_bytes, args.stride, args.rank, layout);
  const protocol::Control<CudaSpace> control{args.abort, args.claim, args.valid, args.record, args.timeout_ns};
  // The kernel before may still be writing the input, the epoch and the output's readers may still be reading.
  exec::wait_for_previous_kernel();
  protocol::Session session(region, exec::CtaCoop{}, reinterpret_cast<State*>(args.states)[cta], control, cta,
                            args.collective);
  if constexpr (variant == Variant::once) {
    run_once<T, op, kMax, protocol_kind, kHeld>(session, args, NoDelay{});
  } else if constexpr (variant == Variant::delayed) {
    run_once<T, op, kMax, protocol_kind, kHeld>(
        session, args, Delay<CudaSpace>{static_cast<DelayPoint>(args.delay_point), args.delay_ns});
  } else {
    std::uint64_t* const clocks = args.clocks + cta * loop_clocks(args.iterations);
    const bool keeps_time = session.coop().thread_rank() == 0;
    if (keeps_time) {
      clocks[args.iterations + 1] = CudaSpace::now_ns();
      clocks[0] = exec::sm_clock();
    }
    for (std::uint32_t i = 1; i <= args.iterations; ++i) {
      run_once<T, op, kMax, protocol_kind, kHeld>(session, args, NoDelay{});
      if (keeps_time) clocks[i] = exec::sm_clock();
    }
    if (keeps_time) clocks[args.iterations + 2] = CudaSpace::now_ns();
  }
  session.close();
}

using Kernel = void (*)(const AllReduceArgs);

// null when there is no such kernel (a held count that the number of ranks does not allow).
template <class T, ReduceOp op, int kMax, Variant variant>
Kernel pick_shape(Protocol protocol_kind, std::uint32_t held) {
  if (protocol_kind == Protocol::simple) return all_reduce_one_shot<T, op, kMax, Protocol::simple, 0, variant>;
  if (held == 1) return all_reduce_one_shot<T, op, kMax, Protocol::ll, 1, variant>;
  if constexpr (variant == Variant::once && kMax <= 4) {
    if (held == 2) return all_reduce_one_shot<T, op, kMax, Protocol::ll, 2, variant>;
  }
  if constexpr (variant == Variant::once && kMax <= 2) {
    if (held == 4) return all_reduce_one_shot<T, op, kMax, Protocol::ll, 4, variant>;
  }
  return nullptr;
}

template <class T, ReduceOp op, Variant variant>
Kernel pick_ranks(int nranks, Protocol protocol_kind, std::uint32_t held) {
  if (nranks <= 2) return pick_shape<T, op, 2, variant>(protocol_kind, held);
  if (nranks <= 4) return pick_shape<T, op, 4, variant>(protocol_kind, held);
  return pick_shape<T, op, 8, variant>(protocol_kind, held);
}

template <class T, Variant variant>
Kernel pick_op(ReduceOp op, int nranks, Protocol protocol_kind, std::uint32_t held) {
  return op == ReduceOp::sum ? pick_ranks<T, ReduceOp::sum, variant>(nranks, protocol_kind, held)
                             : pick_ranks<T, ReduceOp::max, variant>(nranks, protocol_kind, held);
}

// One function a type, each in its own .cu file.
Kernel pick_f32(ReduceOp op, int nranks, Protocol protocol_kind, std::uint32_t held, Variant variant);
Kernel pick_bf16(ReduceOp op, int nranks, Protocol protocol_kind, std::uint32_t held, Variant variant);
Kernel pick_i32(ReduceOp op, int nranks, Protocol protocol_kind, std::uint32_t held, Variant variant);

}  // namespace nearlight::algorithm::cuda
