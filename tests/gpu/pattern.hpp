// What the ranks send and what must come back, as a function of seed, rank and index: the same on GPU and
// CPU, so that both can make the data and check it. Nothing here uses the library's own arithmetic.
#pragma once

#include <cstdint>
#include <cstring>

#include <nearlight/detail/exec/fn.hpp>
#include "base/types.hpp"

namespace nearlight::test {

enum class Values : std::uint32_t {
  general,   // any i32; floats of several magnitudes, so that another order of summing gives other bits
  outliers,  // two large values that cancel, and +-1 from the other ranks: lost when summed in 16 bits
  special,   // NaN, infinities, zeros, denormals, largest values
};

struct Pattern {
  DataType type = DataType::f32;
  ReduceOp op = ReduceOp::sum;
  Values values = Values::general;
  std::uint64_t seed = 0;
};

NL_HOST_FN std::uint32_t element_bytes(DataType type) { return type == DataType::bf16 ? 2 : 4; }

NL_HOST_FN std::uint32_t mixed(std::uint64_t seed, std::uint32_t rank, std::uint64_t index) {
  std::uint64_t x =
      seed * 0x9e3779b97f4a7c15u + index * 0xd1342543de82ef95u + (rank + 1u) * 0xda942042e4dd58b5u;
  x = (x ^ (x >> 33)) * 0xff51afd7ed558ccdu;
  x = (x ^ (x >> 29)) * 0xc4ceb9fe1a85ec53u;
  return static_cast<std::uint32_t>(x >> 32);
}

NL_HOST_FN float float_of(std::uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}
NL_HOST_FN std::uint32_t bits_of(float value) {
  std::uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}
NL_HOST_FN bool is_nan_bits(std::uint32_t f32_bits) { return (f32_bits & 0x7fffffffu) > 0x7f800000u; }

// Round to nearest even, by integers.
NL_HOST_FN std::uint32_t bf16_of(float value) {
  const std::uint32_t bits = bits_of(value);
  if (is_nan_bits(bits)) return 0x7fffu;
  return (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
}

NL_HOST_FN std::uint32_t special_f32(std::uint32_t choice) {
  switch (choice % 16) {
    case 0:
      return 0x7fc00000u;  // NaN
    case 1:
      return 0xffc10000u;  // NaN, negative, another payload
    case 2:
      return 0x7f810000u;  // signalling NaN
    case 3:
      return 0x7f800000u;  // inf
    case 4:
      return 0xff800000u;  // -inf
    case 5:
    case 6:
      return 0x00000000u;
    case 7:
    case 8:
      return 0x80000000u;  // -0
    case 9:
      return 0x00010000u;  // denormal
    case 10:
      return 0x80010000u;
    case 11:
      return 0x7f7f0000u;  // near the largest
    case 12:
      return 0xff7f0000u;
    case 13:
      return 0x3f800000u;
    default:
      return 0xbf800000u;
  }
}

// The two ranks that send the large values of element `index`.
NL_HOST_FN std::uint32_t outlier_rank(std::uint64_t index, std::uint32_t nranks) {
  return static_cast<std::uint32_t>(index % nranks);
}
NL_HOST_FN std::int64_t outlier_value(std::uint64_t seed, std::uint32_t rank, std::uint32_t nranks,
                                      std::uint64_t index) {
  const std::uint32_t large = outlier_rank(index, nranks);
  const std::uint32_t distance = 1 + static_cast<std::uint32_t>(index / nranks % (nranks - 1));
  const bool both = mixed(seed, 99, index) % 4 != 0;
  if (rank == large) return 75264;  // 7.5e4, a bf16 number
  if (both && rank == (large + distance) % nranks) return -75264;
  return mixed(seed, rank, index) % 2 != 0 ? 1 : -1;
}

// The bits of one element (bf16 in the lower half).
NL_HOST_FN std::uint32_t value_bits(const Pattern& pattern, std::uint32_t rank, std::uint32_t nranks,
                                    std::uint64_t index) {
  const std::uint32_t random = mixed(pattern.seed, rank, index);
  if (pattern.type == DataType::i32) {
    if (pattern.values == Values::outliers) {
      return static_cast<std::uint32_t>(outlier_value(pattern.seed, rank, nranks, index));
    }
    return random;
  }
  std::uint32_t bits = 0;
  switch (pattern.values) {
    case Values::general:
      bits = (random & 0x807fffffu) | ((121u + (random >> 23) % 13u) << 23);
      break;
    case Values::outliers:
      bits = bits_of(static_cast<float>(outlier_value(pattern.seed, rank, nranks, index)));
      break;
    case Values::special:
      bits = special_f32(random >> 7);
      break;
  }
  return pattern.type == DataType::bf16 ? bits >> 16 : bits;
}

// A NaN loses to a number; +0 is larger than -0.
NL_HOST_FN float larger(float a, float b) {
  if (is_nan_bits(bits_of(a))) return b;
  if (is_nan_bits(bits_of(b))) return a;
  if (a == 0.0f && b == 0.0f) return float_of(bits_of(a) & bits_of(b));
  return a > b ? a : b;
}

NL_HOST_FN std::uint32_t expected_bits(const Pattern& pattern, std::uint32_t nranks, std::uint64_t index) {
  const bool sum = pattern.op == ReduceOp::sum;
  if (pattern.type != DataType::i32 && pattern.values == Values::outliers && sum) {
    // Exact, then rounded once: what fp32 accumulation must give, as every partial sum is a small integer.
    std::int64_t exact = 0;
    for (std::uint32_t rank = 0; rank < nranks; ++rank)
      exact += outlier_value(pattern.seed, rank, nranks, index);
    const float value = static_cast<float>(exact);
    return pattern.type == DataType::bf16 ? bf16_of(value) : bits_of(value);
  }
  std::uint32_t bits = value_bits(pattern, 0, nranks, index);
  if (pattern.type == DataType::i32) {
    for (std::uint32_t rank = 1; rank < nranks; ++rank) {
      const std::uint32_t other = value_bits(pattern, rank, nranks, index);
      if (sum) {
        bits += other;
      } else if (static_cast<std::int32_t>(other) > static_cast<std::int32_t>(bits)) {
        bits = other;
      }
    }
    return bits;
  }
  const int shift = pattern.type == DataType::bf16 ? 16 : 0;
  float accumulated = float_of(bits << shift);
  for (std::uint32_t rank = 1; rank < nranks; ++rank) {
    const float other = float_of(value_bits(pattern, rank, nranks, index) << shift);
    accumulated = sum ? accumulated + other : larger(accumulated, other);
  }
  return pattern.type == DataType::bf16 ? bf16_of(accumulated) : bits_of(accumulated);
}

// NaN stays NaN, whichever; everything else to the bit.
NL_HOST_FN bool same_value(DataType type, std::uint32_t expected, std::uint32_t got) {
  if (expected == got) return true;
  if (type == DataType::i32) return false;
  const int shift = type == DataType::bf16 ? 16 : 0;
  return is_nan_bits(expected << shift) && is_nan_bits(got << shift);
}

// What an output holds before: a large finite number that no pattern produces.
NL_HOST_FN std::uint32_t poison_bits(DataType type) { return type == DataType::bf16 ? 0x6d5au : 0x6d5a3c1eu; }

// Bytes in front of and behind every buffer that nobody may touch.
inline constexpr std::uint32_t kGuardBytes = 256;
NL_HOST_FN std::uint8_t guard_byte(std::uint32_t position) {
  return static_cast<std::uint8_t>(0xa5u ^ (position * 37u));
}

}  // namespace nearlight::test
