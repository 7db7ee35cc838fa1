// The AllReduce kernels that take the operator at run time: for each type two bounds of the number of ranks
// and the protocols. What there is beyond that (packs held, one round, loops, delays) is for the types
// and operators with kernels of their own.
#pragma once

#include "algorithm/any_math.hpp"
#include "algorithm/cuda/all_reduce_kernels.cuh"

namespace nearlight::algorithm::cuda {

// As all_reduce_one_shot, see there.
template <class T, int kMax, Protocol protocol_kind>
__global__ void __launch_bounds__(kMaxThreads, 1) all_reduce_any(const __grid_constant__ AllReduceArgs args) {
  using Math = AnyMath<CudaSpace, T>;
  using Bufs = ScaledBuffer<CudaSpace, T>;
  const std::uint32_t cta = exec::cta_index();
  const Share share{cta, exec::cta_count()};
  const exec::CtaCoop coop;
  const auto region = region_of<kMax>(args, cta);
  const auto control = control_of(args);
  const Math math{args.op};
  const Bufs input(const_cast<void*>(args.send), args.count, args.op == ReduceOp::premul_sum, args.factor);
  const Bufs output(args.recv, args.count);
  State& state = reinterpret_cast<State*>(args.states)[cta];

  if constexpr (protocol_kind == Protocol::ll) {
    OneShotLl<Math, kMax, 1, false, Region<kMax>, Bufs> work(region, coop.thread_rank(), coop.size(), share,
                                                             input, output, args.first_slot, math);
    exec::wait_for_previous_kernel(work.addresses());
    exec::allow_dependent_launch(args.late);
    protocol::Session session(region, coop, state, control, args.first_region + cta, args.collective);
    work.run(session, NoDelay{});
    session.close();
  } else if constexpr (protocol_kind == Protocol::ll128) {
    exec::wait_for_previous_kernel();
    exec::allow_dependent_launch(args.late);
    protocol::Session session(region, coop, state, control, args.first_region + cta, args.collective);
    one_shot_ll128<Math, kMax>(session, share, input, output, NoDelay{}, math);
    session.close();
  } else if constexpr (protocol_kind == Protocol::sentinel) {
    exec::wait_for_previous_kernel();
    exec::allow_dependent_launch(args.late);
    protocol::Session session(region, coop, state, control, args.first_region + cta, args.collective);
    one_shot_sentinel<Math, SentinelCell<T>, kMax>(session, share, args.held, input, output, NoDelay{}, math);
    session.close();
  } else {
    exec::wait_for_previous_kernel();
    exec::allow_dependent_launch(args.late);
    protocol::Session session(region, coop, state, control, args.first_region + cta, args.collective);
    one_shot_simple<Math, kMax, 1>(session, share, input, output, NoDelay{}, math);
    session.close();
  }
}

// As all_reduce_two_shot.
template <class T, int kMax, Protocol protocol_kind>
__global__ void __launch_bounds__(kMaxThreads, 1)
    all_reduce_two_shot_any(const __grid_constant__ AllReduceArgs args) {
  const std::uint32_t cta = exec::cta_index();
  const Share share{cta, exec::cta_count()};
  const exec::CtaCoop coop;
  const auto region = region_of<kMax>(args, cta);
  const AnyMath<CudaSpace, T> math{args.op};
  const ScaledBuffer<CudaSpace, T> input(const_cast<void*>(args.send), args.count,
                                         args.op == ReduceOp::premul_sum, args.factor);
  const ScaledBuffer<CudaSpace, T> output(args.recv, args.count);
  State& state = reinterpret_cast<State*>(args.states)[cta];
  exec::wait_for_previous_kernel();
  exec::allow_dependent_launch(args.late);
  protocol::Session session(region, coop, state, control_of(args), args.first_region + cta, args.collective);
  if constexpr (protocol_kind == Protocol::ll) {
    two_shot<LlUnits, kMax>(session, share, input, output, NoDelay{}, math);
  } else {
    two_shot<SentinelUnits<SentinelCell<T>>, kMax>(session, share, input, output, NoDelay{}, math);
  }
  session.close();
}

// One rank's pre-multiplied sum: nobody else takes part.
template <class T>
__global__ void __launch_bounds__(kMaxThreads, 1) multiply_alone(const __grid_constant__ AllReduceArgs args) {
  const ScaledBuffer<CudaSpace, T> input(const_cast<void*>(args.send), args.count, true, args.factor);
  const ScaledBuffer<CudaSpace, T> output(args.recv, args.count);
  const exec::CtaCoop coop;
  const auto threads = static_cast<std::uint64_t>(coop.size());
  exec::wait_for_previous_kernel();
  exec::allow_dependent_launch();
  for (std::uint64_t i = exec::cta_index() * threads + static_cast<std::uint64_t>(coop.thread_rank());
       i < input.vecs(); i += exec::cta_count() * threads) {
    output.store_vec(i, input.load_vec(i));
  }
}

// null when there is no such kernel.
template <class T>
Kernel pick_any(const Pick& pick) {
  if (pick.variant != Variant::once) return nullptr;
  if (pick.nranks == 1) return multiply_alone<T>;
  if (pick.algorithm == Algorithm::two_shot_atomic) return nullptr;  // see pick_atomic()
  if (pick.protocol == Protocol::ll128) {
    return pick.nranks <= 2 ? all_reduce_any<T, 2, Protocol::ll128> : all_reduce_any<T, 8, Protocol::ll128>;
  }
  if (pick.algorithm == Algorithm::two_shot) {
    if (pick.protocol == Protocol::ll) return all_reduce_two_shot_any<T, 8, Protocol::ll>;
    if constexpr (kHasSentinel<T>) {
      if (pick.protocol == Protocol::sentinel) return all_reduce_two_shot_any<T, 8, Protocol::sentinel>;
    }
    return nullptr;
  }
  if (pick.protocol == Protocol::sentinel) {
    if constexpr (kHasSentinel<T>) {
      return pick.nranks <= 2 ? all_reduce_any<T, 2, Protocol::sentinel>
                              : all_reduce_any<T, 8, Protocol::sentinel>;
    }
    return nullptr;
  }
  if (pick.protocol == Protocol::simple) {
    return pick.nranks <= 2 ? all_reduce_any<T, 2, Protocol::simple> : all_reduce_any<T, 8, Protocol::simple>;
  }
  if (pick.held != 1) return nullptr;
  return pick.nranks <= 2 ? all_reduce_any<T, 2, Protocol::ll> : all_reduce_any<T, 8, Protocol::ll>;
}

}  // namespace nearlight::algorithm::cuda
