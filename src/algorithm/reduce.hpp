// Reducing packs element by element, in the order the caller adds them: 16-bit floats accumulate in fp32 and
// are rounded once.
#pragma once

#include <cstdint>

#include <nearlight/detail/exec/bits.hpp>
#include <nearlight/detail/exec/concepts.hpp>
#include <nearlight/detail/exec/fn.hpp>
#include "base/types.hpp"

namespace nearlight::algorithm {

// Acc open(pack): the first rank's contribution; add(acc, pack): the next one's; close(acc): the result,
// rounded. The first contribution is taken as it is (0 + -0.0 would lose the sign). kPairsCommute: two
// contributions give the same bits either way round.
template <class S, class T, ReduceOp op>
struct PackMath;

template <class S, ReduceOp op>
struct PackMath<S, float, op> {
  static constexpr int kPerPack = 2;
  static constexpr bool kPairsCommute = S::kFloatPairsCommute;
  struct Acc {
    float value[2];
  };
  static NL_FN Acc open(exec::Pack pack) {
    return {{exec::as_float(exec::low_half(pack)), exec::as_float(exec::high_half(pack))}};
  }
  static NL_FN void add(Acc& acc, exec::Pack pack) {
    const Acc other = open(pack);
    NL_UNROLL
    for (int i = 0; i < 2; ++i) {
      acc.value[i] =
          op == ReduceOp::sum ? acc.value[i] + other.value[i] : S::max_float(acc.value[i], other.value[i]);
    }
  }
  static NL_FN exec::Pack close(const Acc& acc) {
    return exec::join_halves(exec::as_bits(acc.value[0]), exec::as_bits(acc.value[1]));
  }
};

template <class S, ReduceOp op>
struct PackMath<S, Bf16, op> {
  static constexpr int kPerPack = 4;
  static constexpr bool kPairsCommute = S::kFloatPairsCommute;
  struct Acc {
    float value[4];
  };
  static NL_FN Acc open(exec::Pack pack) {
    const std::uint32_t low = exec::low_half(pack), high = exec::high_half(pack);
    return {{exec::as_float(low << 16), exec::as_float(low & 0xffff0000u), exec::as_float(high << 16),
             exec::as_float(high & 0xffff0000u)}};
  }
  static NL_FN void add(Acc& acc, exec::Pack pack) {
    const Acc other = open(pack);
    NL_UNROLL
    for (int i = 0; i < 4; ++i) {
      acc.value[i] =
          op == ReduceOp::sum ? acc.value[i] + other.value[i] : S::max_float(acc.value[i], other.value[i]);
    }
  }
  static NL_FN exec::Pack close(const Acc& acc) {
    return exec::join_halves(S::to_bf16_pair(acc.value[0], acc.value[1]),
                             S::to_bf16_pair(acc.value[2], acc.value[3]));
  }
};

template <class S, ReduceOp op>
struct PackMath<S, std::int32_t, op> {
  static constexpr int kPerPack = 2;
  static constexpr bool kPairsCommute = true;
  struct Acc {
    std::uint32_t value[2];
  };
  static NL_FN Acc open(exec::Pack pack) { return {{exec::low_half(pack), exec::high_half(pack)}}; }
  static NL_FN void add(Acc& acc, exec::Pack pack) {
    const Acc other = open(pack);
    NL_UNROLL
    for (int i = 0; i < 2; ++i) {
      if constexpr (op == ReduceOp::sum) {
        acc.value[i] += other.value[i];  // wraps
      } else {
        const auto a = static_cast<std::int32_t>(acc.value[i]), b = static_cast<std::int32_t>(other.value[i]);
        acc.value[i] = static_cast<std::uint32_t>(a > b ? a : b);
      }
    }
  }
  static NL_FN exec::Pack close(const Acc& acc) { return exec::join_halves(acc.value[0], acc.value[1]); }
};

}  // namespace nearlight::algorithm
