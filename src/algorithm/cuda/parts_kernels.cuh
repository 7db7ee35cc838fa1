// The kernels of the collectives by parts: those that move bytes, one set for all types, and those that
// reduce, a set a type, with the operator at run time.
#pragma once

#include "algorithm/any_math.hpp"
#include "algorithm/byte_buffer.hpp"
#include "algorithm/cuda/all_reduce_kernels.cuh"
#include "algorithm/cuda/parts.hpp"
#include "algorithm/parts_simple.hpp"

namespace nearlight::algorithm::cuda {

using PartsKernel = void (*)(const PartsArgs);

template <int kMax, Protocol protocol_kind, Variant variant, bool kAgrees = false>
__global__ void __launch_bounds__(kMaxThreads, 1) parts_moved(const __grid_constant__ PartsArgs args) {
  const AllReduceArgs& all = args.all;
  const std::uint32_t cta = exec::cta_index();
  const Share share{cta, exec::cta_count()};
  const exec::CtaCoop coop;
  const auto region = region_of<kMax>(all, cta);
  // Each part has its own length.
  const ByteBuffer<CudaSpace> input(const_cast<void*>(all.send), 0), output(all.recv, 0);
  State& state = reinterpret_cast<State*>(all.states)[cta];
  exec::wait_for_previous_kernel();
  exec::allow_dependent_launch(all.late);
  protocol::Session session(region, coop, state, control_of(all), all.first_region + cta, all.collective);
  const auto hooks = hooks_of<variant>(all, cta, session.epoch());
  if constexpr (protocol_kind == Protocol::ll) {
    move_parts<LlUnits, kMax, kAgrees>(session, share, args.parts, input, output, hooks);
  } else {
    move_parts_simple<kSimpleUnroll<2>>(session, share, args.parts, input, output, hooks);
  }
  session.close();
}

template <class T, int kMax, Protocol protocol_kind>
__global__ void __launch_bounds__(kMaxThreads, 1) parts_reduced(const __grid_constant__ PartsArgs args) {
  const AllReduceArgs& all = args.all;
  const std::uint32_t cta = exec::cta_index();
  const Share share{cta, exec::cta_count()};
  const exec::CtaCoop coop;
  const auto region = region_of<kMax>(all, cta);
  const AnyMath<CudaSpace, T> math{all.op};
  const ScaledBuffer<CudaSpace, T> input(const_cast<void*>(all.send), 0, all.op == ReduceOp::premul_sum,
                                         all.factor);
  const Buffer<CudaSpace, T> output(all.recv, 0);
  State& state = reinterpret_cast<State*>(all.states)[cta];
  exec::wait_for_previous_kernel();
  exec::allow_dependent_launch(all.late);
  protocol::Session session(region, coop, state, control_of(all), all.first_region + cta, all.collective);
  if constexpr (protocol_kind == Protocol::ll) {
    reduce_parts<LlUnits, kMax>(session, share, args.parts, input, output, NoDelay{}, math);
  } else if constexpr (protocol_kind == Protocol::sentinel) {
    reduce_parts<SentinelUnits<SentinelCell<T>>, kMax>(session, share, args.parts, input, output, NoDelay{},
                                                       math);
  } else {
    reduce_parts_simple<kMax, 1>(session, share, args.parts, input, output, NoDelay{}, math);
  }
  session.close();
}

// null when there is no such kernel.
template <class T>
PartsKernel pick_reduced(Protocol protocol, int nranks) {
  if (protocol == Protocol::ll) {
    return nranks <= 2 ? parts_reduced<T, 2, Protocol::ll> : parts_reduced<T, 8, Protocol::ll>;
  }
  if (protocol == Protocol::simple) return parts_reduced<T, 8, Protocol::simple>;
  if constexpr (kHasSentinel<T>) {
    if (protocol == Protocol::sentinel)
      return nranks <= 2 ? parts_reduced<T, 2, Protocol::sentinel> : parts_reduced<T, 8, Protocol::sentinel>;
  }
  return nullptr;
}

// Some types each; null for other types.
PartsKernel pick_reduced_integer(DataType type, Protocol protocol, int nranks);
PartsKernel pick_reduced_float(DataType type, Protocol protocol, int nranks);
PartsKernel pick_reduced_small_float(DataType type, Protocol protocol, int nranks);

}  // namespace nearlight::algorithm::cuda
