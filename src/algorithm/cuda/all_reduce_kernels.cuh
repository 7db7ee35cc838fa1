// The one-shot AllReduce kernels made for one type and operator; each .cu file instantiates one type. Those
// that take the operator at run time are in all_reduce_any.cuh.
#pragma once

#include <type_traits>

#include <nearlight/detail/exec/cuda_space.cuh>
#include "algorithm/cuda/all_reduce.hpp"
#include "algorithm/cuda/enqueue.hpp"
#include "algorithm/one_shot.hpp"
#include "algorithm/one_shot_ll128.hpp"
#include "algorithm/one_shot_sentinel.hpp"
#include "algorithm/sentinel_cell.hpp"
#include "algorithm/traced.hpp"
#include "algorithm/two_shot.hpp"
#include "algorithm/without_limits.hpp"

namespace nearlight::algorithm::cuda {

using exec::CudaSpace;
// Two ranks are the case where every instruction counts: their number is then a constant.
template <int kMax, class S = CudaSpace>
using Region = protocol::FlatRegion<S, kMax == 2 ? 2 : 0>;
template <class S>
using StateOf = protocol::RegionState<S>;
using State = StateOf<CudaSpace>;
static_assert(exec::ExecSpace<CudaSpace> && exec::Coop<exec::CtaCoop> && protocol::RegionView<Region<2>>);
static_assert(sizeof(State) == sizeof(RegionStateWords));

// Vectors of 16 bytes that a thread of the simple protocol has in flight: bounded by the registers.
template <int kMax>
inline constexpr int kSimpleUnroll = kMax <= 2   ? 4
                                     : kMax <= 4 ? 2
                                                 : 1;

template <int kMax, class S = CudaSpace>
NL_FN Region<kMax, S> region_of(const AllReduceArgs& args, std::uint32_t cta) {
  const protocol::RegionLayout layout{args.nranks,  args.slots, args.cells,
                                      args.packets, args.wide,  args.sums};
  return Region<kMax, S>(args.regions + cta * args.region_bytes, args.stride, args.rank, layout);
}
template <class S = CudaSpace>
NL_FN protocol::Control<S> control_of(const AllReduceArgs& args) {
  return {args.abort, args.claim, args.valid, args.record, args.timeout_ns};
}

// loop_without_limits: the benchmark's; the library has no kernel of it.
enum class Variant { once, loop, delayed, traced, loop_without_limits };
template <Variant variant>
inline constexpr bool kIsLoop = variant == Variant::loop || variant == Variant::loop_without_limits;

template <Variant variant, int kMax>
using SessionOf = std::conditional_t<variant == Variant::loop_without_limits,
                                     SessionWithoutLimits<Region<kMax>, exec::CtaCoop>,
                                     protocol::Session<Region<kMax>, exec::CtaCoop>>;

// `epoch`: the last one used.
template <Variant variant>
NL_FN auto hooks_of(const AllReduceArgs& args, std::uint32_t cta, std::uint32_t epoch) {
  if constexpr (variant == Variant::delayed) {
    return Delay<CudaSpace>{static_cast<DelayPoint>(args.delay_point), args.delay_ns};
  } else if constexpr (variant == Variant::traced) {
    trace::EpochTimes* const ring = args.trace + std::uint64_t{args.first_region + cta} * trace::kLinesOnGpu;
    return Traced<CudaSpace>(ring, trace::kLinesOnGpu, args.collective, epoch,
                             exec::CtaCoop{}.thread_rank() == 0);
  } else {
    return NoDelay{};
  }
}

// Calls once() args.samples times args.chain times with the clock read in between.
template <class Once>
NL_FN void repeat(const AllReduceArgs& args, std::uint32_t cta, Once&& once) {
  std::uint64_t* const clocks = args.clocks + cta * loop_clocks(args.samples);
  const bool keeps_time = exec::CtaCoop{}.thread_rank() == 0;
  if (keeps_time) {
    clocks[args.samples + 1] = CudaSpace::now_ns();
    clocks[0] = exec::sm_clock();
  }
  for (std::uint32_t sample = 1; sample <= args.samples; ++sample) {
    for (std::uint32_t i = 0; i < args.chain; ++i) once();
    if (keeps_time) clocks[sample] = exec::sm_clock();
  }
  if (keeps_time) clocks[args.samples + 2] = CudaSpace::now_ns();
}

// Whether this CTA is the one that works in a pinned loop. The others stay until it is found, or for a while:
// CTAs that start after some have left would go where those were, and an SM might be left out.
NL_FN bool is_pinned_here(const AllReduceArgs& args) {
  const bool leader = exec::CtaCoop{}.thread_rank() == 0;
  const bool mine = leader && exec::sm_id() == args.sm && CudaSpace::claim(*args.taken);
  if (leader && !mine) {
    protocol::Control<CudaSpace> control;
    control.timeout_ns = 1'000'000;
    (void)protocol::poll<CudaSpace>(control, [&] {
      return CudaSpace::load<exec::Order::relaxed, exec::Scope::device>(*args.taken) != 0;
    });
  }
  return exec::CtaCoop{}.sync_any(mine);
}

// Dependent launch: this kernel starts while the one before it still runs and works out its addresses
// meanwhile. It lets the next one start only after its own wait: a whole chain of kernels that may all start
// at once would fill the GPU's table of running grids, and a rank that shares the GPU would never get in (it
// hangs with three ranks and a chain of a hundred).
template <class T, ReduceOp op, int kMax, Protocol protocol_kind, int kHeld, bool kFast, Variant variant>
__global__ void __launch_bounds__(kMaxThreads, 1)
    all_reduce_one_shot(const __grid_constant__ AllReduceArgs args) {
  using Math = PackMath<CudaSpace, T, op>;
  using Bufs = Buffer<CudaSpace, T>;
  std::uint32_t cta = exec::cta_index();
  std::uint32_t ctas = exec::cta_count();
  if constexpr (kIsLoop<variant>) {
    if (args.pinned != 0) {
      if (!is_pinned_here(args)) return;
      cta = 0;
      ctas = 1;
    }
  }
  const Share share{cta, ctas};
  const exec::CtaCoop coop;
  const auto region = region_of<kMax>(args, cta);
  const auto control = control_of(args);
  const Bufs input(const_cast<void*>(args.send), args.count), output(args.recv, args.count);
  State* state = reinterpret_cast<State*>(args.states) + cta;
  exec::keep(state);

  if constexpr (protocol_kind == Protocol::ll) {
    OneShotLl<Math, kMax, kHeld, kFast, Region<kMax>, Bufs> work(region, coop.thread_rank(), coop.size(),
                                                                 share, input, output, args.first_slot);
    // The kernel before may still be writing the input and the epoch, and reading what we are about to write.
    exec::wait_for_previous_kernel(work.addresses() | exec::address_bits(state));
    exec::allow_dependent_launch(args.late);
    SessionOf<variant, kMax> session(region, coop, *state, control, args.first_region + cta, args.collective);
    const auto hooks = hooks_of<variant>(args, cta, session.epoch());
    // The first of a loop is not timed. With it out of the way, and far from the wrap, a loop has no branch
    // that it could do without.
    work.run(session, hooks);
    if constexpr (kIsLoop<variant>) {
      // An operation of the single-round kernel is one epoch.
      if (kFast && session.is_far_from_wrap(std::uint64_t{args.samples} * args.chain)) {
        repeat(args, cta, [&] { work.template run<false>(session, hooks); });
      } else {
        repeat(args, cta, [&] { work.run(session, hooks); });
      }
    }
    session.close();
  } else {
    exec::wait_for_previous_kernel();
    exec::allow_dependent_launch(args.late);
    SessionOf<variant, kMax> session(region, coop, *state, control, args.first_region + cta, args.collective);
    const auto hooks = hooks_of<variant>(args, cta, session.epoch());
    const auto once = [&] {
      one_shot_simple<Math, kMax, kSimpleUnroll<kMax>>(session, share, input, output, hooks);
    };
    if constexpr (kIsLoop<variant>) {
      repeat(args, cta, once);
    } else {
      once();
    }
    session.close();
  }
}

// The same by packets that arrive without flags. Kernels of their own, so that nothing of it is in LL's.
// kHeld: packets a thread holds, all in one round; kAnyLength: any message; kWholeWarps: any message of whole
// vectors in whole warps.
inline constexpr int kAnyLength = 0, kWholeWarps = -1;

// With more than one packet a thread a CTA has kMaxThreads threads, a number that the addresses are then made
// with. Two of these fit an SM.
template <class T, ReduceOp op, int kMax, int kHeld, Variant variant>
__global__ void __launch_bounds__(kMaxThreads, kHeld == kAnyLength ? 1 : 2)
    all_reduce_sentinel(const __grid_constant__ AllReduceArgs args) {
  using Math = PackMath<CudaSpace, T, op>;
  using Bufs = Buffer<CudaSpace, T>;
  using Rewrite = SentinelCell<T>;
  // A packet a thread is at most half a MiB of them.
  using Space = std::conditional_t<kHeld == 1, CudaSpace, exec::CudaStreamSpace>;
  constexpr bool kAnyWidth = kHeld == kAnyLength || kHeld == 1;
  const std::uint32_t cta = exec::cta_index();
  const Share share{cta, exec::cta_count()};
  const std::conditional_t<kAnyWidth, exec::CtaCoop, exec::FixedCtaCoop<kMaxThreads>> coop;
  const auto region = region_of<kMax, Space>(args, cta);
  const auto control = control_of<Space>(args);
  const Bufs input(const_cast<void*>(args.send), args.count), output(args.recv, args.count);
  auto* state = reinterpret_cast<StateOf<Space>*>(args.states) + cta;
  exec::keep(state);

  if constexpr (kHeld > 0) {
    const OneShotSentinel<Math, Rewrite, kMax, kHeld, Region<kMax, Space>, Bufs> work(
        region, coop.thread_rank(), coop.size(), share, input, output);
    exec::wait_for_previous_kernel(work.addresses() | exec::address_bits(state));
    exec::allow_dependent_launch(args.late);
    protocol::Session session(region, coop, *state, control, args.first_region + cta, args.collective);
    work.run(session, hooks_of<variant>(args, cta, session.epoch()));
    session.close();
  } else {
    exec::wait_for_previous_kernel();
    exec::allow_dependent_launch(args.late);
    protocol::Session session(region, coop, *state, control, args.first_region + cta, args.collective);
    const auto hooks = hooks_of<variant>(args, cta, session.epoch());
    if constexpr (kHeld == kWholeWarps) {
      constexpr int kAtOnce = kMax <= 2 ? 4 : 1;  // bounded by the registers
      one_shot_sentinel_whole<Math, Rewrite, kMax, kAtOnce>(session, share, args.held, input, output, hooks);
    } else {
      one_shot_sentinel<Math, Rewrite, kMax>(session, share, args.held, input, output, hooks);
    }
    session.close();
  }
}

// By wide lines, any message. The threads of a CTA are whole warps.
template <class T, ReduceOp op, int kMax>
__global__ void __launch_bounds__(kMaxThreads, 1)
    all_reduce_ll128(const __grid_constant__ AllReduceArgs args) {
  using Math = PackMath<CudaSpace, T, op>;
  const std::uint32_t cta = exec::cta_index();
  const exec::CtaCoop coop;
  const auto region = region_of<kMax>(args, cta);
  const Buffer<CudaSpace, T> input(const_cast<void*>(args.send), args.count), output(args.recv, args.count);
  State& state = reinterpret_cast<State*>(args.states)[cta];
  exec::wait_for_previous_kernel();
  exec::allow_dependent_launch(args.late);
  protocol::Session session(region, coop, state, control_of(args), args.first_region + cta, args.collective);
  one_shot_ll128<Math, kMax>(session, {cta, exec::cta_count()}, input, output, NoDelay{});
  session.close();
}

// Two-shot by packets, any message.
template <class T, ReduceOp op, int kMax>
__global__ void __launch_bounds__(kMaxThreads, 1)
    all_reduce_two_shot(const __grid_constant__ AllReduceArgs args) {
  using Space = exec::CudaStreamSpace;
  const std::uint32_t cta = exec::cta_index();
  const exec::CtaCoop coop;
  const auto region = region_of<kMax, Space>(args, cta);
  const Buffer<CudaSpace, T> input(const_cast<void*>(args.send), args.count), output(args.recv, args.count);
  auto& state = reinterpret_cast<StateOf<Space>*>(args.states)[cta];
  exec::wait_for_previous_kernel();
  exec::allow_dependent_launch(args.late);
  protocol::Session session(region, coop, state, control_of<Space>(args), args.first_region + cta,
                            args.collective);
  two_shot<SentinelUnits<SentinelCell<T>>, kMax>(session, {cta, exec::cta_count()}, input, output, NoDelay{},
                                                 PackMath<CudaSpace, T, op>{});
  session.close();
}

// Which of the kernels of one type; nranks 1 is the kernel of launch_alone(). `fast`: see OneShotLl and
// OneShotSentinel; with LL only where held is 1. It may differ between ranks: it changes how a rank accesses
// its own buffers, not what it sends.
struct Pick {
  ReduceOp op;
  int nranks;
  Protocol protocol;
  std::uint32_t held;
  bool fast;
  Variant variant;
  Algorithm algorithm = Algorithm::one_shot;
  bool whole = false;  // sentinel: kWholeWarps, where there is nothing faster
};

// One operation a kernel, as calls of the library have it.
template <Variant variant>
inline constexpr bool kOneEach = variant == Variant::once || variant == Variant::traced;

// null when there is no such kernel (a held count that the number of ranks does not allow; sentinel with
// another operator than sum, in a loop or with delays; LL128 of floats, in a loop or with delays).
template <class T, ReduceOp op, int kMax, Variant variant>
Kernel pick_shape(const Pick& pick) {
  if (pick.algorithm == Algorithm::two_shot_atomic) return nullptr;  // see pick_atomic()
  if (pick.protocol == Protocol::ll128) {
    // Of the types that have no sentinel; the others take their operator at run time.
    if constexpr (!kHasSentinel<T> && variant == Variant::once) return all_reduce_ll128<T, op, kMax>;
    return nullptr;
  }
  if (pick.algorithm == Algorithm::two_shot) {
    // The others take their operator at run time.
    if constexpr (kHasSentinel<T> && op == ReduceOp::sum && variant == Variant::once) {
      if (pick.protocol == Protocol::sentinel) return all_reduce_two_shot<T, op, kMax>;
    }
    return nullptr;
  }
  if (pick.protocol == Protocol::sentinel) {
    if constexpr (kHasSentinel<T> && op == ReduceOp::sum && kOneEach<variant>) {
      if (!pick.fast && pick.whole) return all_reduce_sentinel<T, op, kMax, kWholeWarps, variant>;
      if (!pick.fast) return all_reduce_sentinel<T, op, kMax, kAnyLength, variant>;
      if (pick.held == 1) return all_reduce_sentinel<T, op, kMax, 1, variant>;
      if constexpr (kMax == 2) {
        if (pick.held == 2) return all_reduce_sentinel<T, op, kMax, 2, variant>;
        if (pick.held == 4) return all_reduce_sentinel<T, op, kMax, 4, variant>;
      }
    }
    return nullptr;
  }
  if (pick.protocol == Protocol::simple)
    return all_reduce_one_shot<T, op, kMax, Protocol::simple, 0, false, variant>;
  if (pick.held == 1 && pick.fast) return all_reduce_one_shot<T, op, kMax, Protocol::ll, 1, true, variant>;
  if (pick.held == 1) return all_reduce_one_shot<T, op, kMax, Protocol::ll, 1, false, variant>;
  if constexpr (kOneEach<variant> && kMax <= 4) {
    if (pick.held == 2) return all_reduce_one_shot<T, op, kMax, Protocol::ll, 2, false, variant>;
  }
  if constexpr (kOneEach<variant> && kMax <= 2) {
    if (pick.held == 4) return all_reduce_one_shot<T, op, kMax, Protocol::ll, 4, false, variant>;
  }
  return nullptr;
}

template <class T, ReduceOp op, Variant variant>
Kernel pick_ranks(const Pick& pick) {
  if (pick.nranks <= 2) return pick_shape<T, op, 2, variant>(pick);
  if (pick.nranks <= 4) return pick_shape<T, op, 4, variant>(pick);
  return pick_shape<T, op, 8, variant>(pick);
}

template <class T, ReduceOp op>
Kernel pick_variant(const Pick& pick) {
  switch (pick.variant) {
    case Variant::once:
      return pick_ranks<T, op, Variant::once>(pick);
    case Variant::loop:
      return pick_ranks<T, op, Variant::loop>(pick);
    case Variant::delayed:
      if constexpr (std::is_same_v<T, float> && op == ReduceOp::sum) {
        return pick_shape<T, op, 8, Variant::delayed>(pick);
      }
      return nullptr;
    case Variant::traced:
      if constexpr (op == ReduceOp::sum && (std::is_same_v<T, float> || std::is_same_v<T, Bf16>))
        return pick_ranks<T, op, Variant::traced>(pick);
      return nullptr;
    case Variant::loop_without_limits:
      return nullptr;
  }
  return nullptr;
}

// The types with code for their own operators, each in its own .cu file; pick.op is one of these.
Kernel pick_f32(const Pick& pick);
Kernel pick_bf16(const Pick& pick);
Kernel pick_i32(const Pick& pick);
Kernel pick_f16(const Pick& pick);

// The kernels that take the operator as an argument, some types each; null for other types.
Kernel pick_any_integer(DataType type, const Pick& pick);
Kernel pick_any_float(DataType type, const Pick& pick);
Kernel pick_any_small_float(DataType type, const Pick& pick);
// Those that add whole lines (algorithm::reduces()).
Kernel pick_atomic(DataType type, const Pick& pick);

}  // namespace nearlight::algorithm::cuda
