#include "tests/support/reference.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <iterator>
#include <limits>

namespace nearlight::test {

namespace {

std::uint64_t mix(std::uint64_t x) {  // splitmix64
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

constexpr std::uint32_t kSpecialF32[] = {
    0x00000000, 0x80000000,                          // zeros
    0x7f800000, 0xff800000,                          // infinities
    0x7fc00000, 0xffc00000,                          // quiet NaNs
    0x7f800001, 0xff800001,                          // signalling NaNs
    0x7fc12345, 0xffffffff, 0x7fffffff, 0x7fa00000,  // payloads
    0x00000001, 0x80000001,                          // smallest subnormals
    0x007fffff, 0x807fffff,                          // largest subnormals
    0x00800000, 0x80800000,                          // smallest normals
    0x7f7fffff, 0xff7fffff,                          // largest numbers
    0x3f800000, 0xbf800000,                          // one
    0x4b800000, 0x4b800001,                          // 2^24 and the next
};
constexpr std::uint32_t kSpecialBf16[] = {
    0x0000, 0x8000, 0x7f80, 0xff80, 0x7fc0, 0xffc0, 0x7f81, 0xff81, 0x7fff, 0xffff, 0x7fa5, 0x0001,
    0x8001, 0x007f, 0x807f, 0x0080, 0x8080, 0x7f7f, 0xff7f, 0x3f80, 0xbf80, 0x4380, 0x4381, 0x3f81,
};
constexpr std::uint32_t kSpecialI32[] = {0,          1,          0xffffffff, 0x7fffffff,
                                         0x80000000, 0x80000001, 0x55555555, 0xaaaaaaaa};

std::uint32_t narrow(DataType type, std::uint64_t bits) {
  return type == DataType::bf16 ? static_cast<std::uint32_t>(bits & 0xffffu)
                                : static_cast<std::uint32_t>(bits);
}

std::uint32_t whole_number(DataType type, std::uint32_t value) {
  return type == DataType::i32 ? value : round_to(type, value);
}

// One to two digits of exponent around 1, both signs: sums lose bits and cancel.
std::uint32_t number(DataType type, std::uint64_t random) {
  if (type == DataType::i32) return static_cast<std::uint32_t>(random);
  const auto exponent = static_cast<std::uint32_t>(127 - 12 + (random >> 32) % 24);
  const std::uint32_t f32 = static_cast<std::uint32_t>(random >> 63) << 31 | exponent << 23 |
                            static_cast<std::uint32_t>(random & 0x7fffffu);
  return type == DataType::f32 ? f32 : f32 >> 16;
}

std::uint32_t special(DataType type, std::uint64_t random) {
  if (random % 8 == 0) return narrow(type, random >> 16);
  const std::uint64_t pick = random >> 8;
  switch (type) {
    case DataType::i32:
      return kSpecialI32[pick % std::size(kSpecialI32)];
    case DataType::f32:
      return kSpecialF32[pick % std::size(kSpecialF32)];
    case DataType::bf16:
      return kSpecialBf16[pick % std::size(kSpecialBf16)];
  }
  return 0;
}

std::uint32_t as_f32_bits(DataType type, std::uint32_t bits) {
  return type == DataType::bf16 ? bits << 16 : bits;
}

}  // namespace

std::uint32_t input_bits(const Source& source, DataType type, int rank, std::uint64_t index) {
  if (source.values == Values::pattern) {
    // Up to 31, so that eight ranks stay within the 8 bits that a bf16 holds exactly.
    const std::uint64_t sum = source.seed + static_cast<std::uint64_t>(rank) * 11 + index * 5 + (index >> 11);
    return whole_number(type, static_cast<std::uint32_t>(sum % 32));
  }
  const std::uint64_t random = mix(mix(source.seed * 64 + static_cast<std::uint64_t>(rank)) ^ index);
  switch (source.values) {
    case Values::pattern:
      break;
    case Values::numbers:
      return number(type, random);
    case Values::bits:
      return narrow(type, random);
    case Values::special:
      return special(type, random);
  }
  return 0;
}

double value_of(DataType type, std::uint32_t bits) {
  return static_cast<double>(std::bit_cast<float>(as_f32_bits(type, bits)));
}

bool is_nan(DataType type, std::uint32_t bits) {
  return type != DataType::i32 && (as_f32_bits(type, bits) & 0x7fffffffu) > 0x7f800000u;
}

std::uint32_t round_to(DataType type, double value) {
  if (type == DataType::f32) return std::bit_cast<std::uint32_t>(static_cast<float>(value));
  if (value != value) return 0x7fc0;
  if (std::isinf(value)) return value > 0 ? 0x7f80 : 0xff80;
  // The two neighbours in bf16, and the nearer of them; at the same distance the one with the even last bit.
  const std::uint32_t sign = std::signbit(value) ? 0x8000u : 0u;
  const double magnitude = std::fabs(value);
  const float as_float = static_cast<float>(magnitude);
  std::uint32_t below =
      std::bit_cast<std::uint32_t>(std::isinf(as_float) ? std::numeric_limits<float>::max() : as_float) >> 16;
  while (below > 0 && value_of(DataType::bf16, below) > magnitude) --below;
  const double low = value_of(DataType::bf16, below);
  // Behind the largest number the next step would be 2^128.
  const double high = below == 0x7f7f ? 0x1p128 : value_of(DataType::bf16, below + 1);
  const double down = magnitude - low, up = high - magnitude;
  const bool take_high = up < down || (up == down && below % 2 == 1);
  return sign | (take_high ? below + 1 : below);
}

double ulp_at(DataType type, double value) {
  const int digits = type == DataType::bf16 ? 8 : 24;
  if (value == 0) return std::ldexp(1.0, -126 - digits + 1);
  const int exponent = std::max(std::ilogb(value), -126);
  return std::ldexp(1.0, exponent - digits + 1);
}

Expected reduce_reference(DataType type, ReduceOp op, std::span<const std::uint32_t> inputs) {
  if (inputs.size() == 1) return {inputs[0], false};
  if (type == DataType::i32) {
    std::int64_t result = static_cast<std::int32_t>(inputs[0]);
    for (const std::uint32_t bits : inputs.subspan(1)) {
      const std::int64_t next = static_cast<std::int32_t>(bits);
      result = op == ReduceOp::sum ? result + next : std::max(result, next);
    }
    return {static_cast<std::uint32_t>(static_cast<std::uint64_t>(result)), false};
  }
  if (op == ReduceOp::max) {
    bool found = false;
    double best = 0;
    for (const std::uint32_t bits : inputs) {
      if (is_nan(type, bits)) continue;
      const double next = value_of(type, bits);
      if (!found || next > best || (next == best && std::signbit(best))) best = next;
      found = true;
    }
    return found ? Expected{round_to(type, best), false} : Expected{0, true};
  }
  // A double holds the sum of two floats closely enough that rounding it to float is the correctly rounded
  // float sum.
  double sum = value_of(type, inputs[0]);
  for (const std::uint32_t bits : inputs.subspan(1)) {
    sum = value_of(DataType::f32, round_to(DataType::f32, sum + value_of(type, bits)));
  }
  if (sum != sum) return {0, true};
  return {round_to(type, sum), false};
}

bool Expected::matches(DataType type, std::uint32_t got) const {
  return any_nan ? is_nan(type, got) : got == bits;
}

std::uint32_t load_bits(DataType type, const void* data, std::uint64_t index) {
  const std::size_t bytes = size_of(type);
  std::uint32_t bits = 0;
  std::memcpy(&bits, static_cast<const char*>(data) + index * bytes, bytes);
  return bits;
}

void store_bits(DataType type, void* data, std::uint64_t index, std::uint32_t bits) {
  const std::size_t bytes = size_of(type);
  std::memcpy(static_cast<char*>(data) + index * bytes, &bits, bytes);
}

}  // namespace nearlight::test
