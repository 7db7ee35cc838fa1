// Floats of 8 and 16 bits to and from f32, by integer arithmetic and without a branch: for the CPU, and for
// GPUs that have no instruction for it.
#pragma once

#include <cstdint>

#include <nearlight/detail/exec/bits.hpp>
#include <nearlight/detail/exec/fn.hpp>

namespace nearlight::exec {

// kInfinity: the largest exponent means infinities and NaNs, as in IEEE 754; else only the code of all ones
// is a NaN. kSaturate: what is too large, infinities too, becomes the largest number of its sign (CUDA's
// __NV_SATFINITE, which NCCL uses for fp8); else infinity.
template <int kExponentBits, int kMantissaBits, bool kInfinity, bool kSaturate>
struct SmallFloat {
  // Exact; a NaN stays some NaN.
  static NL_FN float widen(std::uint32_t code) {
    const std::uint32_t magnitude = code & kNan;
    const std::uint32_t normal = (magnitude << kShift) + kRebias;
    // A subnormal, as the distance from the smallest normal.
    const std::uint32_t tiny = as_bits(as_float(normal + (1u << 23)) - as_float(kRebias + (1u << 23)));
    std::uint32_t bits = magnitude < (1u << kMantissaBits) ? tiny : normal;
    if constexpr (kInfinity) {
      if (magnitude >= kInfinityCode) bits = magnitude << kShift | 0x7f800000u;
    } else {
      if (magnitude == kNan) bits = 0x7fffffffu;
    }
    return as_float(bits | (code & (kNan + 1)) << (31 - kExponentBits - kMantissaBits));
  }

  // To the nearest, of two the even one. A NaN becomes the positive one of all ones.
  static NL_FN std::uint32_t narrow(float value) {
    const std::uint32_t bits = as_bits(value), magnitude = bits & 0x7fffffffu;
    const std::uint32_t half = (1u << (kShift - 1)) - 1 + (magnitude >> kShift & 1u);
    const std::uint32_t normal = (magnitude - kRebias + half) >> kShift;
    // Where a unit in the last place is the smallest subnormal, the addition does the rounding.
    const std::uint32_t tiny = as_bits(as_float(magnitude) + as_float(kUnit)) - kUnit;
    std::uint32_t code = magnitude < kRebias + (1u << 23) ? tiny : normal;
    code = code < kMost ? code : kMost;
    code |= bits >> (31 - kExponentBits - kMantissaBits) & (kNan + 1);
    return magnitude > 0x7f800000u ? kNan : code;
  }

 private:
  static constexpr int kBias = (1 << (kExponentBits - 1)) - 1;
  static constexpr int kShift = 23 - kMantissaBits;
  static constexpr std::uint32_t kRebias = std::uint32_t{127 - kBias} << 23;
  static constexpr std::uint32_t kUnit = std::uint32_t{127 + 1 - kBias + kShift} << 23;
  static constexpr std::uint32_t kNan = (1u << (kExponentBits + kMantissaBits)) - 1;  // all ones, no sign
  static constexpr std::uint32_t kInfinityCode = ((1u << kExponentBits) - 1) << kMantissaBits;
  static constexpr std::uint32_t kMost = !kInfinity  ? kNan - 1
                                         : kSaturate ? kInfinityCode - 1
                                                     : kInfinityCode;
  static_assert(kInfinity || kSaturate);
};

using HalfFormat = SmallFloat<5, 10, true, false>;  // IEEE binary16
using E4m3Format = SmallFloat<4, 3, false, true>;
using E5m2Format = SmallFloat<5, 2, true, true>;

}  // namespace nearlight::exec
