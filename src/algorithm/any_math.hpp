// The arithmetic with the operator as an argument at run time: one piece of code for a type, where PackMath
// makes one for each of its operators.
#pragma once

#include <cstdint>

#include <nearlight/detail/exec/concepts.hpp>
#include <nearlight/detail/exec/fn.hpp>
#include "algorithm/buffer.hpp"
#include "algorithm/reduce.hpp"
#include "base/types.hpp"

namespace nearlight::algorithm {

// By value, so that they travel in registers.
template <int kMax>
struct OtherPacks {
  exec::Pack pack[kMax - 1];
};

template <class S, class T, int kMax>
NL_SHARED_FN exec::Pack reduce_by(ReduceOp op, exec::Pack own, OtherPacks<kMax> got, int rank, int nranks) {
  switch (op) {
    case ReduceOp::prod:
      return reduce_in_rank_order<PackMath<S, T, ReduceOp::prod>, kMax>({}, own, got.pack, rank, nranks);
    case ReduceOp::max:
      return reduce_in_rank_order<PackMath<S, T, ReduceOp::max>, kMax>({}, own, got.pack, rank, nranks);
    case ReduceOp::min:
      return reduce_in_rank_order<PackMath<S, T, ReduceOp::min>, kMax>({}, own, got.pack, rank, nranks);
    case ReduceOp::avg:
      return reduce_in_rank_order<PackMath<S, T, ReduceOp::avg>, kMax>({}, own, got.pack, rank, nranks);
    case ReduceOp::sum:
    case ReduceOp::premul_sum:  // the contributions have been multiplied as they were loaded
      break;
  }
  return reduce_in_rank_order<PackMath<S, T, ReduceOp::sum>, kMax>({}, own, got.pack, rank, nranks);
}

template <class S, class T>
NL_SHARED_FN exec::Pack multiply_by(exec::Pack pack, std::uint64_t factor) {
  return multiply_pack<S, T>(pack, factor);
}

template <class S, class T>
struct AnyMath {
  ReduceOp op;

  template <int kMax>
  NL_FN exec::Pack reduce(exec::Pack own, const exec::Pack (&got)[kMax - 1], int rank, int nranks) const {
    OtherPacks<kMax> others;
    NL_UNROLL
    for (int i = 0; i < kMax - 1; ++i) others.pack[i] = got[i];
    return reduce_by<S, T, kMax>(op, own, others, rank, nranks);
  }
};

// A buffer whose elements are multiplied by the rank's own factor as they are loaded: the input of a
// pre-multiplied sum. Without a factor, a buffer.
template <class S, class T>
class ScaledBuffer : public Buffer<S, T> {
 public:
  using Base = Buffer<S, T>;

  NL_FN ScaledBuffer(void* data, std::uint64_t count) : Base(data, count), scaled_(false), factor_(0) {}
  NL_FN ScaledBuffer(void* data, std::uint64_t count, bool scaled, std::uint64_t factor)
      : Base(data, count), scaled_(scaled), factor_(factor) {}

  NL_FN ScaledBuffer part(std::uint64_t at, std::uint64_t count) const {
    ScaledBuffer part = *this;
    static_cast<Base&>(part) = Base::part(at, count);
    return part;
  }

  NL_FN exec::Pack load_pack(typename Base::Place place) const { return scale(Base::load_pack(place)); }
  NL_FN exec::Vec load_vec(std::uint64_t index) const {
    exec::Vec vec = Base::load_vec(index);
    vec.pack[0] = scale(vec.pack[0]);
    vec.pack[1] = scale(vec.pack[1]);
    return vec;
  }

 private:
  NL_FN exec::Pack scale(exec::Pack pack) const { return scaled_ ? multiply_by<S, T>(pack, factor_) : pack; }

  bool scaled_;
  std::uint64_t factor_;
};

}  // namespace nearlight::algorithm
