#include "cli/bench/reference.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>

namespace nearlight::bench {

namespace {

constexpr std::byte kPoison{0xff};
constexpr std::byte kGuard{0x5c};

std::uint64_t mix(std::uint64_t x) {
  x ^= x >> 30;
  x *= 0xbf58476d1ce4e5b9u;
  x ^= x >> 27;
  x *= 0x94d049bb133111ebu;
  return x ^ x >> 31;
}

std::uint64_t random_bits(std::uint64_t seed, int rank, std::size_t index) {
  const std::uint64_t at =
      seed * 0x9e3779b97f4a7c15u + static_cast<std::uint64_t>(rank + 1) * 0xd1b54a32d192ed03u;
  return mix(at + index);
}

// Of a float type: bits of the mantissa, and the exponent of the smallest normal number.
struct Format {
  int mantissa_bits, smallest_exponent;
};
Format format_of(DataType type) {
  switch (type) {
    case DataType::f16:
      return {10, -14};
    case DataType::bf16:
      return {7, -126};
    case DataType::f8e4m3:
      return {3, -6};
    case DataType::f8e5m2:
      return {2, -14};
    case DataType::f64:
      return {52, -1022};
    default:
      return {23, -126};
  }
}
bool is_small(DataType type) { return size_of(type) < 4; }

std::uint64_t low_bits(std::uint64_t bits, std::size_t bytes) {
  return bytes == 8 ? bits : bits & ((std::uint64_t{1} << 8 * bytes) - 1);
}

// A finite number that the type holds exactly, as its bits.
std::uint64_t encode(DataType type, double value) {
  const Format format = format_of(type);
  const std::uint64_t sign = std::signbit(value) ? std::uint64_t{1} << (8 * size_of(type) - 1) : 0;
  const double magnitude = std::fabs(value);
  const int exponent =
      magnitude == 0 ? format.smallest_exponent : std::max(std::ilogb(magnitude), format.smallest_exponent);
  // The hidden bit of a normal number adds one to the exponent's field.
  const auto mantissa = static_cast<std::uint64_t>(std::ldexp(magnitude, format.mantissa_bits - exponent));
  const auto field = static_cast<std::uint64_t>(exponent - format.smallest_exponent);
  return sign | ((field << format.mantissa_bits) + mantissa);
}

// To the nearest number of the type, of two the even one; `value` is finite and not too large.
double rounded(DataType type, double value) {
  if (type == DataType::f64) return value;
  const auto single = static_cast<double>(static_cast<float>(value));
  if (type == DataType::f32 || single == 0) return single;
  const Format format = format_of(type);
  const double unit =
      std::ldexp(1.0, std::max(std::ilogb(single), format.smallest_exponent) - format.mantissa_bits);
  return std::nearbyint(single / unit) * unit;
}

double float_value(DataType type, ReduceOp op, std::uint64_t random) {
  const double sign = (random & 1) != 0 ? -1.0 : 1.0;
  if (op == ReduceOp::prod) return sign * std::ldexp(1.0, static_cast<int>((random >> 8) % 3) - 1);
  if (!is_small(type)) {
    return std::ldexp(static_cast<double>(static_cast<std::int64_t>(random >> 44) - (1 << 19)), -16);
  }
  const int bits = format_of(type).mantissa_bits;
  return sign * (1.0 + std::ldexp(static_cast<double>(random >> 8 & ((1u << bits) - 1)), -bits));
}

std::uint64_t input_bits(DataType type, ReduceOp op, std::uint64_t seed, int rank, std::size_t index) {
  const std::uint64_t random = random_bits(seed, rank, index);
  if (is_integer(type)) return low_bits(random, size_of(type));
  return encode(type, float_value(type, op, random));
}

// Integers with their sign.
double to_double(DataType type, std::uint64_t bits) {
  switch (type) {
    case DataType::i8:
      return static_cast<std::int8_t>(bits);
    case DataType::i32:
      return static_cast<std::int32_t>(bits);
    case DataType::i64:
      return static_cast<double>(static_cast<std::int64_t>(bits));
    case DataType::u8:
    case DataType::u32:
    case DataType::u64:
      return static_cast<double>(bits);
    default:
      break;
  }
  const Format format = format_of(type);
  const std::uint64_t sign = std::uint64_t{1} << (8 * size_of(type) - 1), code = bits & ~sign;
  const auto field = static_cast<int>(code >> format.mantissa_bits);
  const auto mantissa = static_cast<double>(code & ((std::uint64_t{1} << format.mantissa_bits) - 1));
  const double hidden = field == 0 ? 0 : std::ldexp(1.0, format.mantissa_bits);
  const int exponent = format.smallest_exponent + std::max(field, 1) - 1;
  // Infinities and NaNs come out as large numbers: nothing here expects any.
  return (bits != code ? -1.0 : 1.0) * std::ldexp(hidden + mantissa, exponent - format.mantissa_bits);
}

double factor_of(int rank) { return rank % 2 == 0 ? 2.0 : 1.0; }

std::uint64_t load(DataType type, std::span<const std::byte> from, std::size_t index) {
  std::uint64_t bits = 0;
  std::memcpy(&bits, from.data() + index * size_of(type), size_of(type));
  return bits;
}

bool less(DataType type, std::uint64_t a, std::uint64_t b) {
  if (type == DataType::i64) return static_cast<std::int64_t>(a) < static_cast<std::int64_t>(b);
  return type == DataType::u64 ? a < b : to_double(type, a) < to_double(type, b);
}

std::uint64_t expected_integer(DataType type, ReduceOp op, std::uint64_t seed, int nranks,
                               std::size_t index) {
  std::uint64_t result = 0;
  for (int rank = 0; rank < nranks; ++rank) {
    std::uint64_t next = input_bits(type, op, seed, rank, index);
    if (op == ReduceOp::premul_sum) next *= static_cast<std::uint64_t>(factor_of(rank));
    if (rank == 0) {
      result = next;
    } else if (op == ReduceOp::max || op == ReduceOp::min) {
      if (less(type, result, next) == (op == ReduceOp::max)) result = next;
    } else {
      result = op == ReduceOp::prod ? result * next : result + next;
    }
    result = low_bits(result, size_of(type));
  }
  if (op != ReduceOp::avg) return result;
  const bool negative =
      type != DataType::u8 && type != DataType::u32 && type != DataType::u64 && less(type, result, 0);
  // Towards zero: divided as a magnitude.
  const std::uint64_t magnitude = low_bits(negative ? std::uint64_t{0} - result : result, size_of(type));
  const std::uint64_t quotient = magnitude / static_cast<std::uint64_t>(nranks);
  return low_bits(negative ? std::uint64_t{0} - quotient : quotient, size_of(type));
}

double exact_float(DataType type, ReduceOp op, std::uint64_t seed, int nranks, std::size_t index) {
  double result = 0;
  for (int rank = 0; rank < nranks; ++rank) {
    double next = float_value(type, op, random_bits(seed, rank, index));
    if (op == ReduceOp::premul_sum) next *= factor_of(rank);
    if (rank == 0) {
      result = next;
    } else if (op == ReduceOp::max || op == ReduceOp::min) {
      result = op == ReduceOp::max ? std::max(result, next) : std::min(result, next);
    } else {
      result = op == ReduceOp::prod ? result * next : result + next;
    }
  }
  return op == ReduceOp::avg ? result / nranks : result;
}

// How far a float may be off that was rounded more than once: half a unit in the last place of the largest
// partial result there can be, per rounding after the first. avg may also have multiplied with a reciprocal
// at every rank.
double slack_of(DataType type, ReduceOp op, int nranks, int roundings) {
  const bool adds = op == ReduceOp::sum || op == ReduceOp::avg || op == ReduceOp::premul_sum;
  if (roundings <= 1 || !adds || (!is_small(type) && op != ReduceOp::avg)) return 0;
  const double largest = (is_small(type) ? 2.0 : 8.0) * (op == ReduceOp::avg          ? 1
                                                         : op == ReduceOp::premul_sum ? 2 * nranks
                                                                                      : nranks);
  const int steps = op == ReduceOp::avg ? 2 * roundings : roundings - 1;
  return steps * std::ldexp(1.0, std::ilogb(largest) - format_of(type).mantissa_bits - 1);
}

std::string describe(std::size_t index, double expected, double got) {
  char text[128];
  std::snprintf(text, sizeof text, "element %zu is %.9g, expected %.9g", index, got, expected);
  return text;
}

}  // namespace

double input_value(DataType type, ReduceOp op, std::uint64_t seed, int rank, std::size_t index) {
  return to_double(type, input_bits(type, op, seed, rank, index));
}

Reduction reduction_of(DataType type, ReduceOp op, int rank) {
  if (op != ReduceOp::premul_sum) return op;
  const std::uint64_t factor =
      is_integer(type) ? static_cast<std::uint64_t>(factor_of(rank)) : encode(type, factor_of(rank));
  return Reduction::premul_sum(type, &factor);
}

void fill_input(std::span<std::byte> out, DataType type, ReduceOp op, std::uint64_t seed, int rank) {
  const std::size_t size = size_of(type);
  for (std::size_t i = 0; i < out.size() / size; ++i) {
    const std::uint64_t bits = input_bits(type, op, seed, rank, i);
    std::memcpy(out.data() + i * size, &bits, size);
  }
}

void fill_poison(std::span<std::byte> out) { std::fill(out.begin(), out.end(), kPoison); }
void fill_guard(std::span<std::byte> out) { std::fill(out.begin(), out.end(), kGuard); }
std::size_t changed_guard_bytes(std::span<const std::byte> guard) {
  return guard.size() - static_cast<std::size_t>(std::count(guard.begin(), guard.end(), kGuard));
}

Verdict compare(std::span<const std::byte> result, DataType type, ReduceOp op, std::uint64_t seed, int nranks,
                int roundings) {
  return compare(result, type, op, seed, {Collective::all_reduce, 0, nranks, 0, 0}, roundings);
}

Verdict compare(std::span<const std::byte> result, DataType type, ReduceOp op, std::uint64_t seed,
                const Part& part, int roundings) {
  Verdict verdict;
  const bool reduces = is_reduction(part.collective);
  const double slack = reduces ? slack_of(type, op, part.nranks, roundings) : 0;
  const std::size_t own = static_cast<std::size_t>(part.rank) * part.count;
  for (std::size_t i = 0; i < result.size() / size_of(type); ++i) {
    const std::uint64_t got = load(type, result, i);
    std::uint64_t expected = 0;
    if (reduces) {
      const std::size_t at = part.collective == Collective::reduce_scatter ? own + i : i;
      expected = is_integer(type) ? expected_integer(type, op, seed, part.nranks, at)
                                  : encode(type, rounded(type, exact_float(type, op, seed, part.nranks, at)));
    } else if (part.collective == Collective::send_recv) {
      expected = input_bits(type, op, seed, (part.rank + part.nranks - 1) % part.nranks, i);
    } else if (part.collective == Collective::broadcast) {
      expected = input_bits(type, op, seed, part.root, i);
    } else {
      const std::size_t at = i % part.count + (part.collective == Collective::all_to_all ? own : 0);
      expected = input_bits(type, op, seed, static_cast<int>(i / part.count), at);
    }
    if (got == expected) continue;
    const double got_value = to_double(type, got), expected_value = to_double(type, expected);
    if (std::abs(got_value - expected_value) <= slack && slack > 0) continue;
    if (verdict.wrong++ == 0) verdict.first = describe(i, expected_value, got_value);
  }
  return verdict;
}

Verdict compare_input(std::span<const std::byte> input, DataType type, ReduceOp op, std::uint64_t seed,
                      int rank) {
  Verdict verdict;
  for (std::size_t i = 0; i < input.size() / size_of(type); ++i) {
    if (load(type, input, i) == input_bits(type, op, seed, rank, i)) continue;
    if (verdict.wrong++ == 0) verdict.first = "the input's element " + std::to_string(i) + " was changed";
  }
  return verdict;
}

}  // namespace nearlight::bench
