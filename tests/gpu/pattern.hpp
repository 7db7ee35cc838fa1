// What the ranks send and what must come back, as a function of seed, rank and index: the same on GPU and
// CPU, so that both can make the data and check it. Nothing here uses the library's own arithmetic: elements
// are taken apart by the definition of their format and computed in double.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include <nearlight/detail/exec/fn.hpp>
#include "base/types.hpp"

namespace nearlight::test {

enum class Values : std::uint32_t {
  general,   // any integer; floats of several magnitudes, so that another order of summing gives other bits
  outliers,  // two large values that cancel, and +-1 from the other ranks: lost when summed in the type
             // itself
  whole,     // whole numbers up to 31 or -31: a sum of 8 is exact in every order and type but fp8
  special,   // NaN, infinities, zeros, denormals, largest values; the ends of the range of integers
};

struct Pattern {
  DataType type = DataType::f32;
  ReduceOp op = ReduceOp::sum;
  Values values = Values::general;
  std::uint64_t seed = 0;
};

NL_HOST_FN std::uint32_t element_bytes(DataType type) {
  switch (type) {
    case DataType::i8:
    case DataType::u8:
    case DataType::f8e4m3:
    case DataType::f8e5m2:
      return 1;
    case DataType::f16:
    case DataType::bf16:
      return 2;
    case DataType::i64:
    case DataType::u64:
    case DataType::f64:
      return 8;
    default:
      return 4;
  }
}
NL_HOST_FN bool is_whole(DataType type) { return static_cast<int>(type) <= 5; }
NL_HOST_FN bool has_sign(DataType type) {
  return type == DataType::i8 || type == DataType::i32 || type == DataType::i64;
}
NL_HOST_FN std::uint64_t ones(std::uint32_t bits) {
  return bits >= 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << bits) - 1;
}
NL_HOST_FN std::uint64_t cut(DataType type, std::uint64_t bits) {
  return bits & ones(8 * element_bytes(type));
}

NL_HOST_FN std::uint32_t mixed(std::uint64_t seed, std::uint32_t rank, std::uint64_t index) {
  std::uint64_t x =
      seed * 0x9e3779b97f4a7c15u + index * 0xd1342543de82ef95u + (rank + 1u) * 0xda942042e4dd58b5u;
  x = (x ^ (x >> 33)) * 0xff51afd7ed558ccdu;
  x = (x ^ (x >> 29)) * 0xc4ceb9fe1a85ec53u;
  return static_cast<std::uint32_t>(x >> 32);
}

NL_HOST_FN double double_of(std::uint64_t bits) {
  double value;
  memcpy(&value, &bits, sizeof value);
  return value;
}
NL_HOST_FN std::uint64_t bits_of(double value) {
  std::uint64_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}
NL_HOST_FN double power_of_two(int exponent) {
  return double_of(static_cast<std::uint64_t>(exponent + 1023) << 52);
}

// A float format: widths of exponent and mantissa; whether the largest exponent is for infinities and NaNs
// (else only all ones are a NaN); whether what is too large becomes the largest number.
struct FloatFormat {
  int exponent_bits, mantissa_bits;
  bool infinities, saturates;
};
NL_HOST_FN FloatFormat float_format(DataType type) {
  switch (type) {
    case DataType::f16:
      return {5, 10, true, false};
    case DataType::bf16:
      return {8, 7, true, false};
    case DataType::f64:
      return {11, 52, true, false};
    case DataType::f8e4m3:
      return {4, 3, false, true};
    case DataType::f8e5m2:
      return {5, 2, true, true};
    default:
      return {8, 23, true, false};
  }
}
NL_HOST_FN std::uint64_t sign_bit(DataType type) { return std::uint64_t{1} << (8 * element_bytes(type) - 1); }
// The code of the infinity, or of what stands in its place.
NL_HOST_FN std::uint64_t past_largest(const FloatFormat& format) {
  const auto all = static_cast<std::uint32_t>(format.exponent_bits + format.mantissa_bits);
  return format.infinities ? ones(static_cast<std::uint32_t>(format.exponent_bits)) << format.mantissa_bits
                           : ones(all);
}
NL_HOST_FN std::uint64_t nan_bits(DataType type) { return sign_bit(type) - 1; }

NL_HOST_FN double value_of(DataType type, std::uint64_t bits) {
  if (type == DataType::f64) return double_of(bits);
  const FloatFormat format = float_format(type);
  const std::uint64_t code = bits & (sign_bit(type) - 1), past = past_largest(format);
  const int bias = (1 << (format.exponent_bits - 1)) - 1;
  double magnitude;
  if (format.infinities && code == past) {
    magnitude = double_of(0x7ff0000000000000u);
  } else if (code >= past) {
    return double_of(0x7ff8000000000000u);
  } else {
    const auto exponent = static_cast<int>(code >> format.mantissa_bits);
    const auto mantissa = static_cast<double>(code & ones(static_cast<std::uint32_t>(format.mantissa_bits)));
    magnitude = exponent == 0
                    ? mantissa * power_of_two(1 - bias - format.mantissa_bits)
                    : (mantissa * power_of_two(-format.mantissa_bits) + 1.0) * power_of_two(exponent - bias);
  }
  return bits != code ? -magnitude : magnitude;
}

// What a float type holds of a double that f32 (for f64: f64) has already rounded: nearest even.
NL_HOST_FN std::uint64_t code_of(DataType type, double value) {
  if (value != value) return nan_bits(type);
  if (type == DataType::f64) return bits_of(value);
  const FloatFormat format = float_format(type);
  const std::uint64_t sign = bits_of(value) >> 63 != 0 ? sign_bit(type) : 0, past = past_largest(format);
  const std::uint64_t too_large = sign | (format.saturates ? past - 1 : past);
  const double magnitude = double_of(bits_of(value) & 0x7fffffffffffffffu);
  const int smallest = 2 - (1 << (format.exponent_bits - 1));
  int exponent = static_cast<int>(bits_of(magnitude) >> 52) - 1023;
  if (exponent == 1024) return too_large;
  if (exponent < smallest) exponent = smallest;
  // In units of the last place; the carry into the exponent comes by itself.
  const double units = rint(magnitude * power_of_two(format.mantissa_bits - exponent));
  const std::uint64_t code = static_cast<std::uint64_t>(units) +
                             (static_cast<std::uint64_t>(exponent - smallest) << format.mantissa_bits);
  return code >= past ? too_large : sign | code;
}

// One step of the computation: f32 but for f64. The double that comes in is exact, or so close that the
// result is the correctly rounded one.
NL_HOST_FN double step(DataType type, double exact) {
  if (type != DataType::f64) return static_cast<double>(static_cast<float>(exact));
  // Nothing may contract this with what comes next.
  volatile double stored = exact;
  return stored;
}

NL_HOST_FN std::int64_t outlier_large(DataType type) {
  switch (type) {
    case DataType::f16:
    case DataType::f8e5m2:
      return 32768;
    case DataType::f8e4m3:
      return 256;
    default:
      return 75264;  // 7.5e4, a bf16 number
  }
}
// The two ranks that send the large values of element `index`.
NL_HOST_FN std::uint32_t outlier_rank(std::uint64_t index, std::uint32_t nranks) {
  return static_cast<std::uint32_t>(index % nranks);
}
NL_HOST_FN std::int64_t outlier_value(const Pattern& pattern, std::uint32_t rank, std::uint32_t nranks,
                                      std::uint64_t index) {
  const std::uint32_t large = outlier_rank(index, nranks);
  const std::uint32_t distance = 1 + static_cast<std::uint32_t>(index / nranks % (nranks - 1));
  const bool both = mixed(pattern.seed, 99, index) % 4 != 0;
  if (rank == large) return outlier_large(pattern.type);
  if (both && rank == (large + distance) % nranks) return -outlier_large(pattern.type);
  return mixed(pattern.seed, rank, index) % 2 != 0 ? 1 : -1;
}

NL_HOST_FN std::uint64_t special_float(DataType type, std::uint32_t choice) {
  const FloatFormat format = float_format(type);
  const std::uint64_t past = past_largest(format), sign = choice / 16 % 2 != 0 ? sign_bit(type) : 0;
  const std::uint64_t normal = std::uint64_t{1} << format.mantissa_bits;
  switch (choice % 16) {
    case 0:
      return sign | past | normal / 2;  // quiet NaN
    case 1:
      return sign | past | normal / 2 | 1;  // another payload
    case 2:
      return sign | past | 1;  // signalling NaN
    case 3:
      return sign | nan_bits(type);
    case 4:
    case 5:
      return sign | past;  // infinity
    case 6:
    case 7:
    case 8:
      return sign;  // zeros
    case 9:
      return sign | 1;  // denormals
    case 10:
      return sign | (normal - 1);
    case 11:
      return sign | (past - 1);  // the largest
    case 12:
      return sign | normal;
    default:
      return sign | code_of(type, 1.0);
  }
}
NL_HOST_FN std::uint64_t special_whole(DataType type, std::uint32_t choice) {
  const std::uint64_t sign = sign_bit(type);
  switch (choice % 8) {
    case 0:
      return sign;
    case 1:
      return sign - 1;
    case 2:
      return sign + 1;
    case 3:
      return cut(type, ~std::uint64_t{0});
    case 4:
      return 0;
    case 5:
      return 1;
    case 6:
      return cut(type, 0x5555555555555555u);
    default:
      return cut(type, 0xaaaaaaaaaaaaaaaau);
  }
}

// The bits of one element, in the lower bytes.
NL_HOST_FN std::uint64_t value_bits(const Pattern& pattern, std::uint32_t rank, std::uint32_t nranks,
                                    std::uint64_t index) {
  const DataType type = pattern.type;
  const std::uint32_t random = mixed(pattern.seed, rank, index);
  const std::uint64_t wide =
      static_cast<std::uint64_t>(mixed(pattern.seed + 1, rank + 1, index)) << 32 | random;
  if (pattern.values == Values::outliers && nranks > 1) {
    const std::int64_t value = outlier_value(pattern, rank, nranks, index);
    return is_whole(type) ? cut(type, static_cast<std::uint64_t>(value))
                          : code_of(type, static_cast<double>(value));
  }
  if (pattern.values == Values::whole) {
    const auto value = static_cast<std::int64_t>(random % 63) - 31;
    return is_whole(type) ? cut(type, static_cast<std::uint64_t>(value))
                          : code_of(type, static_cast<double>(value));
  }
  if (is_whole(type)) {
    return pattern.values == Values::special ? special_whole(type, random >> 7) : cut(type, wide);
  }
  if (pattern.values == Values::special) return special_float(type, random >> 7);
  const FloatFormat format = float_format(type);
  const int bias = (1 << (format.exponent_bits - 1)) - 1;
  const auto spread = static_cast<std::uint32_t>(format.exponent_bits == 4 ? 7 : 13);
  const auto exponent = static_cast<std::uint64_t>(bias) - spread / 2 + (random >> 23) % spread;
  return (random & 0x80000000u ? sign_bit(type) : 0) | exponent << format.mantissa_bits |
         (mixed(pattern.seed + 2, rank, index) * (wide | 1) &
          ones(static_cast<std::uint32_t>(format.mantissa_bits)));
}

// What the rank multiplies with in a pre-multiplied sum: a small whole number, another one on each rank.
NL_HOST_FN std::uint64_t factor_bits(DataType type, std::uint32_t rank) {
  const std::uint64_t number = rank % 3 + 1;
  return is_whole(type) ? cut(type, rank % 2 != 0 ? ~number + 1 : number)
                        : code_of(type, (rank % 2 != 0 ? -1.0 : 1.0) * static_cast<double>(number) * 0.75);
}

NL_HOST_FN bool less(DataType type, std::uint64_t a, std::uint64_t b) {
  // With the sign bit turned over, signed numbers are in the order of unsigned ones.
  const std::uint64_t turned = has_sign(type) ? sign_bit(type) : 0;
  return (a ^ turned) < (b ^ turned);
}

NL_HOST_FN std::uint64_t expected_whole(const Pattern& pattern, std::uint32_t nranks, std::uint64_t index) {
  const DataType type = pattern.type;
  std::uint64_t result = 0;
  for (std::uint32_t rank = 0; rank < nranks; ++rank) {
    std::uint64_t next = value_bits(pattern, rank, nranks, index);
    if (pattern.op == ReduceOp::premul_sum) next = cut(type, next * factor_bits(type, rank));
    if (rank == 0) {
      result = next;
    } else if (pattern.op == ReduceOp::max) {
      if (less(type, result, next)) result = next;
    } else if (pattern.op == ReduceOp::min) {
      if (less(type, next, result)) result = next;
    } else {
      result = cut(type, pattern.op == ReduceOp::prod ? result * next : result + next);
    }
  }
  if (pattern.op != ReduceOp::avg) return result;
  const bool negative = has_sign(type) && (result & sign_bit(type)) != 0;
  const std::uint64_t magnitude = cut(type, negative ? ~result + 1 : result) / nranks;
  return cut(type, negative ? ~magnitude + 1 : magnitude);
}

NL_HOST_FN std::uint64_t expected_bits(const Pattern& pattern, std::uint32_t nranks, std::uint64_t index) {
  const DataType type = pattern.type;
  const bool multiplied = pattern.op == ReduceOp::premul_sum;
  if (nranks == 1 && !multiplied) return value_bits(pattern, 0, 1, index);
  if (is_whole(type)) return expected_whole(pattern, nranks, index);
  if (pattern.values == Values::outliers && pattern.op == ReduceOp::sum) {
    // Exact, then rounded once: what fp32 accumulation must give, as every partial sum is a small integer.
    std::int64_t exact = 0;
    for (std::uint32_t rank = 0; rank < nranks; ++rank) exact += outlier_value(pattern, rank, nranks, index);
    return code_of(type, static_cast<double>(exact));
  }
  double result = 0;
  for (std::uint32_t rank = 0; rank < nranks; ++rank) {
    double next = value_of(type, value_bits(pattern, rank, nranks, index));
    if (multiplied) {
      next = value_of(type, code_of(type, step(type, next * value_of(type, factor_bits(type, rank)))));
    }
    if (rank == 0) {
      result = next;
    } else if (pattern.op == ReduceOp::max || pattern.op == ReduceOp::min) {
      // A NaN loses to a number; +0 is larger than -0.
      const bool max = pattern.op == ReduceOp::max;
      const bool zeros = next == 0 && result == 0;
      const bool beats = zeros ? (bits_of(result) >> 63 != 0) == max : max ? next > result : next < result;
      if (result != result || beats) result = next;
    } else {
      result = step(type, pattern.op == ReduceOp::prod ? result * next : result + next);
    }
  }
  if (pattern.op == ReduceOp::avg) result = step(type, result / static_cast<double>(nranks));
  return code_of(type, result);
}

// What an output holds before: for floats a large finite number that no pattern produces.
NL_HOST_FN std::uint64_t poison_bits(DataType type) {
  return type == DataType::bf16 ? 0x6d5au : cut(type, 0x6d5a3c1e6d5a3c1eu);
}

// Bytes in front of and behind every buffer that nobody may touch.
inline constexpr std::uint32_t kGuardBytes = 256;
NL_HOST_FN std::uint8_t guard_byte(std::uint32_t position) {
  return static_cast<std::uint8_t>(0xa5u ^ (position * 37u));
}

}  // namespace nearlight::test
