// Reducing packs element by element, in the order the caller adds them: floats of 8 and 16 bits accumulate in
// fp32 and are rounded once, integers wrap. docs/concepts/numerics.md says what each type and operator does.
#pragma once

#include <cstdint>
#include <type_traits>

#include <nearlight/detail/exec/bits.hpp>
#include <nearlight/detail/exec/concepts.hpp>
#include <nearlight/detail/exec/fn.hpp>
#include "base/types.hpp"

namespace nearlight::algorithm {

// The elements of one pack in the type that they are computed in: widen() is exact, narrow() rounds to
// nearest even and leaves no NaN but the one of all ones without a sign.
template <class S, class T>
struct Lanes;

template <class S>
struct Lanes<S, float> {
  using Wide = float;
  static constexpr int kPerPack = 2;
  static NL_FN void widen(exec::Pack pack, Wide (&out)[2]) {
    out[0] = exec::as_float(exec::low_half(pack));
    out[1] = exec::as_float(exec::high_half(pack));
  }
  static NL_FN exec::Pack narrow(const Wide (&in)[2]) {
    return exec::join_halves(exec::as_bits(S::one_nan(in[0])), exec::as_bits(S::one_nan(in[1])));
  }
};

template <class S>
struct Lanes<S, double> {
  using Wide = double;
  static constexpr int kPerPack = 1;
  static NL_FN void widen(exec::Pack pack, Wide (&out)[1]) { out[0] = exec::as_double(pack); }
  static NL_FN exec::Pack narrow(const Wide (&in)[1]) { return exec::as_bits(S::one_nan(in[0])); }
};

template <class S>
struct Lanes<S, Bf16> {
  using Wide = float;
  static constexpr int kPerPack = 4;
  static NL_FN void widen(exec::Pack pack, Wide (&out)[4]) {
    const std::uint32_t low = exec::low_half(pack), high = exec::high_half(pack);
    out[0] = exec::as_float(low << 16);
    out[1] = exec::as_float(low & 0xffff0000u);
    out[2] = exec::as_float(high << 16);
    out[3] = exec::as_float(high & 0xffff0000u);
  }
  static NL_FN exec::Pack narrow(const Wide (&in)[4]) {
    return exec::join_halves(S::to_bf16_pair(in[0], in[1]), S::to_bf16_pair(in[2], in[3]));
  }
};

template <class S>
struct Lanes<S, F16> {
  using Wide = float;
  static constexpr int kPerPack = 4;
  static NL_FN void widen(exec::Pack pack, Wide (&out)[4]) {
    S::from_f16_pair(exec::low_half(pack), out[0], out[1]);
    S::from_f16_pair(exec::high_half(pack), out[2], out[3]);
  }
  static NL_FN exec::Pack narrow(const Wide (&in)[4]) {
    return exec::join_halves(S::to_f16_pair(in[0], in[1]), S::to_f16_pair(in[2], in[3]));
  }
};

template <class S>
struct Lanes<S, F8e4m3> {
  using Wide = float;
  static constexpr int kPerPack = 8;
  static NL_FN void widen(exec::Pack pack, Wide (&out)[8]) {
    NL_UNROLL
    for (int i = 0; i < 4; ++i) {
      S::from_e4m3_pair(static_cast<std::uint32_t>(pack >> 16 * i) & 0xffffu, out[2 * i], out[2 * i + 1]);
    }
  }
  static NL_FN exec::Pack narrow(const Wide (&in)[8]) {
    return exec::join_halves(S::to_e4m3_pair(in[0], in[1]) | S::to_e4m3_pair(in[2], in[3]) << 16,
                             S::to_e4m3_pair(in[4], in[5]) | S::to_e4m3_pair(in[6], in[7]) << 16);
  }
};

template <class S>
struct Lanes<S, F8e5m2> {
  using Wide = float;
  static constexpr int kPerPack = 8;
  static NL_FN void widen(exec::Pack pack, Wide (&out)[8]) {
    NL_UNROLL
    for (int i = 0; i < 4; ++i) {
      S::from_e5m2_pair(static_cast<std::uint32_t>(pack >> 16 * i) & 0xffffu, out[2 * i], out[2 * i + 1]);
    }
  }
  static NL_FN exec::Pack narrow(const Wide (&in)[8]) {
    return exec::join_halves(S::to_e5m2_pair(in[0], in[1]) | S::to_e5m2_pair(in[2], in[3]) << 16,
                             S::to_e5m2_pair(in[4], in[5]) | S::to_e5m2_pair(in[6], in[7]) << 16);
  }
};

// Integers of less than 32 bits are computed in 32 and cut at the end, which wraps as often as needed.
template <class S, class T>
requires std::is_integral_v<T>
struct Lanes<S, T> {
  using Wide = std::conditional_t<sizeof(T) == 8, T,
                                  std::conditional_t<std::is_signed_v<T>, std::int32_t, std::uint32_t>>;
  static constexpr int kPerPack = static_cast<int>(sizeof(exec::Pack) / sizeof(T));
  static NL_FN void widen(exec::Pack pack, Wide (&out)[kPerPack]) {
    if constexpr (kPerPack == 2) {
      out[0] = static_cast<T>(exec::low_half(pack));
      out[1] = static_cast<T>(exec::high_half(pack));
    } else {
      NL_UNROLL
      for (int i = 0; i < kPerPack; ++i) out[i] = static_cast<T>(pack >> kShift * i);
    }
  }
  static NL_FN exec::Pack narrow(const Wide (&in)[kPerPack]) {
    using Bits = std::make_unsigned_t<T>;
    if constexpr (kPerPack == 2) {
      return exec::join_halves(static_cast<Bits>(in[0]), static_cast<Bits>(in[1]));
    } else {
      exec::Pack pack = 0;
      NL_UNROLL
      for (int i = 0; i < kPerPack; ++i) {
        pack |= static_cast<exec::Pack>(static_cast<Bits>(in[i])) << kShift * i;
      }
      return pack;
    }
  }

 private:
  static constexpr int kShift = kPerPack == 1 ? 0 : 8 * static_cast<int>(sizeof(T));
};

// Two contributions.
template <class S, ReduceOp op, class Wide>
NL_FN Wide combine(Wide a, Wide b) {
  if constexpr (std::is_integral_v<Wide>) {
    using Bits = std::make_unsigned_t<Wide>;
    if constexpr (op == ReduceOp::max) return a > b ? a : b;
    if constexpr (op == ReduceOp::min) return a < b ? a : b;
    if constexpr (op == ReduceOp::prod) return static_cast<Wide>(static_cast<Bits>(a) * static_cast<Bits>(b));
    return static_cast<Wide>(static_cast<Bits>(a) + static_cast<Bits>(b));
  } else if constexpr (op == ReduceOp::prod) {
    return S::multiply(a, b);
  } else if constexpr (op != ReduceOp::max && op != ReduceOp::min) {
    return a + b;
  } else if constexpr (std::is_same_v<Wide, float>) {
    return op == ReduceOp::max ? S::max_float(a, b) : S::min_float(a, b);
  } else {
    // By the definition: a NaN loses to a number, +0 beats -0 in max and -0 beats +0 in min.
    if (a != a) return b;
    if (b != b) return a;
    const std::uint64_t a_bits = exec::as_bits(a), b_bits = exec::as_bits(b);
    if (a == b) return exec::as_double(op == ReduceOp::max ? a_bits & b_bits : a_bits | b_bits);
    return (op == ReduceOp::max) == (a > b) ? a : b;
  }
}

// What is left to do once all contributions are in: avg divides, integers after they have wrapped.
template <class S, class T, ReduceOp op, class Wide>
NL_FN Wide finish(Wide value, int nranks) {
  if constexpr (op != ReduceOp::avg) {
    return value;
  } else if constexpr (std::is_integral_v<Wide>) {
    return static_cast<Wide>(static_cast<T>(value)) / static_cast<Wide>(nranks);
  } else {
    return S::divide(value, static_cast<Wide>(nranks));
  }
}

// One rank's contribution to a pre-multiplied sum: each element times the factor, whose bits are in the lower
// bytes, rounded to the type.
template <class S, class T>
NL_FN exec::Pack multiply_pack(exec::Pack pack, std::uint64_t factor) {
  using L = Lanes<S, T>;
  typename L::Wide value[L::kPerPack], by[L::kPerPack];
  L::widen(pack, value);
  L::widen(factor, by);
  NL_UNROLL
  for (int i = 0; i < L::kPerPack; ++i) value[i] = combine<S, ReduceOp::prod>(value[i], by[0]);
  return L::narrow(value);
}

// Acc open(pack): the first rank's contribution; add(acc, pack): the next one's; close(acc, nranks): the
// result, rounded. The first contribution is taken as it is (0 + -0.0 would lose the sign).
template <class S, class T, ReduceOp op>
struct PackMath {
  using L = Lanes<S, T>;
  using Wide = typename L::Wide;
  static constexpr int kPerPack = L::kPerPack;
  struct Acc {
    Wide value[kPerPack];
  };
  static NL_FN Acc open(exec::Pack pack) {
    Acc acc;
    L::widen(pack, acc.value);
    return acc;
  }
  static NL_FN void add(Acc& acc, exec::Pack pack) {
    const Acc other = open(pack);
    NL_UNROLL
    for (int i = 0; i < kPerPack; ++i) acc.value[i] = combine<S, op>(acc.value[i], other.value[i]);
  }
  static NL_FN exec::Pack close(const Acc& acc, int nranks) {
    if constexpr (op == ReduceOp::avg) {
      Acc divided;
      NL_UNROLL
      for (int i = 0; i < kPerPack; ++i) divided.value[i] = finish<S, T, op>(acc.value[i], nranks);
      return L::narrow(divided.value);
    } else {
      return L::narrow(acc.value);
    }
  }
};

// Reduces own and the others' contributions in rank order; got[i] is the one of other_rank(i, rank). Of two
// ranks each begins with its own: with one NaN for all, a op b and b op a are the same bits.
template <class Math, int kMax>
NL_FN exec::Pack reduce_in_rank_order(const Math& math, exec::Pack own, const exec::Pack (&got)[kMax - 1],
                                      int rank, int nranks) {
  if constexpr (kMax == 2) rank = 0;
  if constexpr (requires { typename Math::Acc; }) {
    typename Math::Acc acc = Math::open(rank == 0 ? own : got[0]);
    NL_UNROLL
    for (int source = 1; source < kMax; ++source) {
      if (source >= nranks) break;
      exec::Pack next = got[source - 1];
      if (source < kMax - 1 && source < rank) next = got[source];
      if (source == rank) next = own;
      Math::add(acc, next);
    }
    return Math::close(acc, nranks);
  } else {
    return math.template reduce<kMax>(own, got, rank, nranks);
  }
}

}  // namespace nearlight::algorithm
