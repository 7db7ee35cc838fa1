#include "tests/support/reference.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <iterator>
#include <map>
#include <vector>

namespace nearlight::test {

namespace {

using Wide = __int128;

std::uint64_t mix(std::uint64_t x) {  // splitmix64
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

int bits_of(DataType type) { return static_cast<int>(8 * size_of(type)); }

std::uint64_t ones(int bits) { return bits >= 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << bits) - 1; }

std::uint64_t cut(DataType type, std::uint64_t bits) { return bits & ones(bits_of(type)); }

bool is_signed(DataType type) {
  return type == DataType::i8 || type == DataType::i32 || type == DataType::i64;
}

Wide integer_of(DataType type, std::uint64_t bits) {
  const Wide value = bits;
  const bool negative = is_signed(type) && (bits >> (bits_of(type) - 1) & 1) != 0;
  return negative ? value - (Wide{1} << bits_of(type)) : value;
}

std::uint64_t sign_of(DataType type) { return std::uint64_t{1} << (bits_of(type) - 1); }

// The code of the infinity, or what stands in its place: one past the largest number.
std::uint64_t past_largest(DataType type) {
  const Format format = format_of(type);
  return format.infinities ? ones(format.exponent_bits) << format.mantissa_bits
                           : ones(format.exponent_bits + format.mantissa_bits);
}

// A magnitude by the definition of its format, as if the largest exponent were like any other.
double magnitude_of(DataType type, std::uint64_t code) {
  const Format format = format_of(type);
  const int bias = (1 << (format.exponent_bits - 1)) - 1;
  const auto exponent = static_cast<int>(code >> format.mantissa_bits);
  const auto mantissa = static_cast<double>(code & ones(format.mantissa_bits));
  const double one = std::ldexp(1.0, format.mantissa_bits);
  return exponent == 0 ? std::ldexp(mantissa, 1 - bias - format.mantissa_bits)
                       : std::ldexp(one + mantissa, exponent - bias - format.mantissa_bits);
}

// The finite magnitudes of a float of 8 or 16 bits by code, and the one past the largest: looking them up is
// what makes millions of elements bearable.
const std::vector<double>& magnitudes(DataType type) {
  static const auto all = [] {
    std::map<DataType, std::vector<double>> tables;
    for (const DataType each : {DataType::f16, DataType::bf16, DataType::f8e4m3, DataType::f8e5m2}) {
      for (std::uint64_t code = 0; code <= past_largest(each); ++code) {
        tables[each].push_back(magnitude_of(each, code));
      }
    }
    return tables;
  }();
  return all.at(type);
}

std::uint64_t whole_number(DataType type, std::uint64_t value) {
  // So small that eight of them fit into what the type holds exactly.
  if (type == DataType::f8e4m3 || type == DataType::f8e5m2) value %= 2;
  if (type == DataType::i8) value %= 16;
  if (is_integer(type)) return value;
  static const auto all = [] {
    std::map<DataType, std::array<std::uint64_t, 32>> tables;
    for (const DataType each : kDataTypes) {
      if (is_integer(each)) continue;
      for (std::size_t i = 0; i < 32; ++i) tables[each][i] = round_to(each, static_cast<double>(i));
    }
    return tables;
  }();
  return all.at(type)[value];
}

// A few binary orders of magnitude around 1, both signs: sums lose bits and cancel.
std::uint64_t number(DataType type, std::uint64_t random) {
  if (is_integer(type)) return cut(type, random);
  const Format format = format_of(type);
  const int bias = (1 << (format.exponent_bits - 1)) - 1;
  const std::uint64_t spread = format.exponent_bits == 4 ? 6 : format.exponent_bits == 5 ? 12 : 24;
  const std::uint64_t exponent = static_cast<std::uint64_t>(bias) - spread / 2 + mix(random) % spread;
  return (random >> 63 != 0 ? sign_of(type) : 0) | exponent << format.mantissa_bits |
         (random & ones(format.mantissa_bits));
}

std::uint64_t special(DataType type, std::uint64_t random) {
  if (random % 8 == 0) return cut(type, random >> 8 | random << 56);
  const std::uint64_t pick = random >> 8, sign = sign_of(type);
  if (is_integer(type)) {
    const std::uint64_t codes[] = {0,    1,        ~std::uint64_t{0},   sign - 1,
                                   sign, sign + 1, 0x5555555555555555u, 0xaaaaaaaaaaaaaaaau};
    return cut(type, codes[pick % std::size(codes)]);
  }
  const Format format = format_of(type);
  const std::uint64_t past = past_largest(type), all = ones(format.exponent_bits + format.mantissa_bits),
                      quiet = std::uint64_t{1} << (format.mantissa_bits - 1);
  const std::uint64_t one = round_to(type, 1.0);
  const std::uint64_t codes[] = {
      0,                 // zero
      past,              // infinity
      past | quiet,      // a quiet NaN
      past | 1,          // a signalling one
      past | quiet | 1,  // a payload
      all,               // all ones
      all - 1,
      1,                               // the smallest subnormal
      ones(format.mantissa_bits),      // the largest
      ones(format.mantissa_bits) + 1,  // the smallest normal
      past - 1,                        // the largest number
      one,
      one + 1,
      round_to(type, std::ldexp(1.0, format.mantissa_bits + 1))};  // beside it 1 is a half unit
  return codes[pick % std::size(codes)] | ((pick >> 8 & 1) != 0 ? sign : 0);
}

std::uint64_t rounded_f32(double value) { return std::bit_cast<std::uint32_t>(static_cast<float>(value)); }

std::uint64_t reduce_integers(DataType type, ReduceOp op, std::span<const std::uint64_t> inputs,
                              std::span<const std::uint64_t> factors) {
  std::uint64_t result = 0;
  for (std::size_t rank = 0; rank < inputs.size(); ++rank) {
    std::uint64_t next = inputs[rank];
    if (op == ReduceOp::premul_sum) next = cut(type, next * factors[rank]);
    if (rank == 0) {
      result = next;
      continue;
    }
    const bool larger = integer_of(type, next) > integer_of(type, result);
    switch (op) {
      case ReduceOp::max:
        if (larger) result = next;
        break;
      case ReduceOp::min:
        if (!larger) result = next;
        break;
      case ReduceOp::prod:
        result = cut(type, result * next);
        break;
      default:
        result = cut(type, result + next);
    }
  }
  if (op != ReduceOp::avg) return result;
  const Wide quotient = integer_of(type, result) / static_cast<Wide>(inputs.size());  // towards zero
  return cut(type, static_cast<std::uint64_t>(quotient));
}

}  // namespace

Format format_of(DataType type) {
  switch (type) {
    case DataType::f16:
      return {5, 10, true, false};
    case DataType::bf16:
      return {8, 7, true, false};
    case DataType::f32:
      return {8, 23, true, false};
    case DataType::f64:
      return {11, 52, true, false};
    case DataType::f8e4m3:
      return {4, 3, false, true};
    case DataType::f8e5m2:
      return {5, 2, true, true};
    default:
      return {};
  }
}

std::uint64_t input_bits(const Source& source, DataType type, int rank, std::uint64_t index) {
  if (source.values == Values::pattern) {
    // Up to 31, so that eight ranks stay within the 8 bits that a bf16 holds exactly.
    const std::uint64_t sum = source.seed + static_cast<std::uint64_t>(rank) * 11 + index * 5 + (index >> 11);
    return whole_number(type, sum % 32);
  }
  const std::uint64_t random = mix(mix(source.seed * 64 + static_cast<std::uint64_t>(rank)) ^ index);
  switch (source.values) {
    case Values::pattern:
      break;
    case Values::numbers:
      return number(type, random);
    case Values::bits:
      return cut(type, random);
    case Values::special:
      return special(type, random);
  }
  return 0;
}

std::uint64_t factor_bits(const Source& source, DataType type, int rank) {
  return input_bits({source.values, source.seed + 7919}, type, rank, 3);
}

Reduction reduction_of(const Source& source, DataType type, ReduceOp op, int rank) {
  if (op != ReduceOp::premul_sum) return op;
  const std::uint64_t bits = factor_bits(source, type, rank);
  return Reduction::premul_sum(type, &bits);
}

double value_of(DataType type, std::uint64_t bits) {
  if (is_integer(type)) return static_cast<double>(integer_of(type, bits));
  if (type == DataType::f64) return std::bit_cast<double>(bits);
  if (type == DataType::f32) return std::bit_cast<float>(static_cast<std::uint32_t>(bits));
  const double sign = (bits & sign_of(type)) != 0 ? -1.0 : 1.0;
  const std::uint64_t code = bits & ~sign_of(type);
  if (is_nan(type, bits)) return std::nan("");
  if (code == past_largest(type)) return sign * HUGE_VAL;
  return sign * magnitudes(type)[code];
}

bool is_nan(DataType type, std::uint64_t bits) {
  if (is_integer(type)) return false;
  const std::uint64_t code = bits & ~sign_of(type);
  return format_of(type).infinities ? code > past_largest(type) : code == past_largest(type);
}

std::uint64_t nan_of(DataType type) { return ones(bits_of(type) - 1); }

std::uint64_t round_to(DataType type, double value) {
  if (value != value) return nan_of(type);
  if (type == DataType::f64) return std::bit_cast<std::uint64_t>(value);
  if (type == DataType::f32) return rounded_f32(value);
  const std::uint64_t sign = std::signbit(value) ? sign_of(type) : 0, past = past_largest(type);
  const std::uint64_t largest = past - 1, too_large = format_of(type).saturates ? largest : past;
  const double magnitude = std::fabs(value);
  if (std::isinf(magnitude)) return sign | too_large;
  // The largest code that is not above, and the nearer of it and the next; at the same distance the even one.
  // Behind the largest number the next step counts as if there were one.
  const std::vector<double>& all = magnitudes(type);
  const auto next = std::upper_bound(all.begin(), all.end() - 1, magnitude);
  const auto above = static_cast<std::uint64_t>(next - all.begin()), below = above - 1;
  const double down = magnitude - all[below], up = all[above] - magnitude;
  const bool take_above = up < down || (up == down && below % 2 == 1);
  const std::uint64_t code = take_above ? above : below;
  return sign | (code >= past ? too_large : code);
}

double ulp_at(DataType type, double value) {
  const Format format = format_of(type);
  const int smallest = 2 - (1 << (format.exponent_bits - 1));
  const int exponent = value == 0 ? smallest : std::max(std::ilogb(value), smallest);
  return std::ldexp(1.0, exponent - format.mantissa_bits);
}

std::uint64_t reduce_reference(DataType type, ReduceOp op, std::span<const std::uint64_t> inputs,
                               std::span<const std::uint64_t> factors) {
  if (inputs.size() == 1 && op != ReduceOp::premul_sum) return inputs[0];
  if (is_integer(type)) return reduce_integers(type, op, inputs, factors);

  // A double holds the sum, product and quotient of two f32 closely enough that rounding it to f32 is the
  // correctly rounded f32 one. For f64 it is the thing itself.
  const auto rounded = [type](double exact) {
    return type == DataType::f64 ? exact : value_of(DataType::f32, round_to(DataType::f32, exact));
  };
  const auto contribution = [&](std::size_t rank) {
    const double value = value_of(type, inputs[rank]);
    if (op != ReduceOp::premul_sum) return value;
    return value_of(type, round_to(type, rounded(value_of(type, factors[rank]) * value)));
  };
  double result = contribution(0);
  for (std::size_t rank = 1; rank < inputs.size(); ++rank) {
    const double next = contribution(rank);
    switch (op) {
      case ReduceOp::max:
      case ReduceOp::min: {
        if (next != next) break;
        const bool beats = op == ReduceOp::max ? next > result : next < result;
        const bool beaten_zero = next == 0 && result == 0 && std::signbit(result) == (op == ReduceOp::max);
        if (result != result || beats || beaten_zero) result = next;
        break;
      }
      case ReduceOp::prod:
        result = rounded(result * next);
        break;
      default:
        result = rounded(result + next);
    }
  }
  if (op == ReduceOp::avg) result = rounded(result / static_cast<double>(inputs.size()));
  return round_to(type, result);
}

std::uint64_t load_bits(DataType type, const void* data, std::uint64_t index) {
  const std::size_t bytes = size_of(type);
  std::uint64_t bits = 0;
  std::memcpy(&bits, static_cast<const char*>(data) + index * bytes, bytes);
  return bits;
}

void store_bits(DataType type, void* data, std::uint64_t index, std::uint64_t bits) {
  const std::size_t bytes = size_of(type);
  std::memcpy(static_cast<char*>(data) + index * bytes, &bits, bytes);
}

}  // namespace nearlight::test
