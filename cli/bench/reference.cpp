#include "cli/bench/reference.hpp"

#include <algorithm>
#include <bit>
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

std::uint32_t random_bits(std::uint64_t seed, int rank, std::size_t index) {
  const std::uint64_t at =
      seed * 0x9e3779b97f4a7c15u + static_cast<std::uint64_t>(rank + 1) * 0xd1b54a32d192ed03u;
  return static_cast<std::uint32_t>(mix(at + index) >> 32);
}

std::int32_t int_value(std::uint32_t bits) { return static_cast<std::int32_t>(bits); }
// 20 bits, a multiple of 2^-16 in [-8, 8).
float float_value(std::uint32_t bits) {
  return static_cast<float>(static_cast<std::int32_t>(bits >> 12) - (1 << 19)) * 0x1p-16f;
}
// The storage of +-[1, 2).
std::uint16_t bf16_bits(std::uint32_t bits) {
  return static_cast<std::uint16_t>(0x3f80u | (bits & 0x7fu) | (bits & 0x80u) << 8);
}
float from_bf16(std::uint16_t bits) { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16); }
// Nearest even; `value` is exact and finite.
std::uint16_t to_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  return static_cast<std::uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

template <class T>
T load(std::span<const std::byte> from, std::size_t index) {
  T value;
  std::memcpy(&value, from.data() + index * sizeof value, sizeof value);
  return value;
}

std::string describe(std::size_t index, double expected, double got) {
  char text[128];
  std::snprintf(text, sizeof text, "element %zu is %.9g, expected %.9g", index, got, expected);
  return text;
}

struct Counter {
  Verdict verdict;
  void miss(std::size_t index, double expected, double got) {
    if (verdict.wrong++ == 0) verdict.first = describe(index, expected, got);
  }
};

Verdict compare_i32(std::span<const std::byte> result, ReduceOp op, std::uint64_t seed, int nranks) {
  Counter counter;
  for (std::size_t i = 0; i < result.size() / sizeof(std::int32_t); ++i) {
    std::uint32_t expected = random_bits(seed, 0, i);
    for (int rank = 1; rank < nranks; ++rank) {
      const std::uint32_t other = random_bits(seed, rank, i);
      if (op == ReduceOp::sum) {
        expected += other;  // wraps
      } else {
        expected = static_cast<std::uint32_t>(std::max(int_value(expected), int_value(other)));
      }
    }
    const auto got = load<std::int32_t>(result, i);
    if (got != int_value(expected)) counter.miss(i, int_value(expected), got);
  }
  return counter.verdict;
}

Verdict compare_f32(std::span<const std::byte> result, ReduceOp op, std::uint64_t seed, int nranks) {
  Counter counter;
  for (std::size_t i = 0; i < result.size() / sizeof(float); ++i) {
    double expected = float_value(random_bits(seed, 0, i));
    for (int rank = 1; rank < nranks; ++rank) {
      const double other = float_value(random_bits(seed, rank, i));
      expected = op == ReduceOp::sum ? expected + other : std::max(expected, other);
    }
    const auto got = load<float>(result, i);
    if (!(got == expected)) counter.miss(i, expected, got);
  }
  return counter.verdict;
}

Verdict compare_bf16(std::span<const std::byte> result, ReduceOp op, std::uint64_t seed, int nranks,
                     int roundings) {
  Counter counter;
  // Half a unit in the last place of the largest partial sum there can be, per rounding after the first.
  const double slack = (roundings - 1) * std::ldexp(1.0, std::ilogb(2.0 * nranks) - 8);
  for (std::size_t i = 0; i < result.size() / sizeof(std::uint16_t); ++i) {
    double sum = from_bf16(bf16_bits(random_bits(seed, 0, i)));
    for (int rank = 1; rank < nranks; ++rank) {
      const double other = from_bf16(bf16_bits(random_bits(seed, rank, i)));
      sum = op == ReduceOp::sum ? sum + other : std::max(sum, other);
    }
    const double expected = from_bf16(to_bf16(static_cast<float>(sum)));
    const double got = from_bf16(load<std::uint16_t>(result, i));
    const bool right = op == ReduceOp::sum ? std::abs(got - expected) <= slack : got == expected;
    if (!right) counter.miss(i, expected, got);
  }
  return counter.verdict;
}

}  // namespace

double input_value(DataType type, std::uint64_t seed, int rank, std::size_t index) {
  const std::uint32_t bits = random_bits(seed, rank, index);
  switch (type) {
    case DataType::i32:
      return int_value(bits);
    case DataType::f32:
      return float_value(bits);
    case DataType::bf16:
      return from_bf16(bf16_bits(bits));
  }
  return 0;
}

void fill_input(std::span<std::byte> out, DataType type, std::uint64_t seed, int rank) {
  const auto fill = [&](auto make) {
    using T = decltype(make(0u));
    for (std::size_t i = 0; i < out.size() / sizeof(T); ++i) {
      const T value = make(random_bits(seed, rank, i));
      std::memcpy(out.data() + i * sizeof value, &value, sizeof value);
    }
  };
  switch (type) {
    case DataType::i32:
      return fill(int_value);
    case DataType::f32:
      return fill(float_value);
    case DataType::bf16:
      return fill(bf16_bits);
  }
}

void fill_poison(std::span<std::byte> out) { std::fill(out.begin(), out.end(), kPoison); }
void fill_guard(std::span<std::byte> out) { std::fill(out.begin(), out.end(), kGuard); }
std::size_t changed_guard_bytes(std::span<const std::byte> guard) {
  return guard.size() - static_cast<std::size_t>(std::count(guard.begin(), guard.end(), kGuard));
}

Verdict compare(std::span<const std::byte> result, DataType type, ReduceOp op, std::uint64_t seed, int nranks,
                int roundings) {
  switch (type) {
    case DataType::i32:
      return compare_i32(result, op, seed, nranks);
    case DataType::f32:
      return compare_f32(result, op, seed, nranks);
    case DataType::bf16:
      return compare_bf16(result, op, seed, nranks, roundings);
  }
  return {};
}

Verdict compare_input(std::span<const std::byte> input, DataType type, std::uint64_t seed, int rank) {
  Counter counter;
  const std::size_t size = size_of(type);
  std::byte expected[4];
  for (std::size_t i = 0; i < input.size() / size; ++i) {
    const std::uint32_t bits = random_bits(seed, rank, i);
    switch (type) {
      case DataType::i32:
        std::memcpy(expected, &bits, 4);
        break;
      case DataType::f32: {
        const float value = float_value(bits);
        std::memcpy(expected, &value, 4);
        break;
      }
      case DataType::bf16: {
        const std::uint16_t value = bf16_bits(bits);
        std::memcpy(expected, &value, 2);
        break;
      }
    }
    if (std::memcmp(expected, input.data() + i * size, size) != 0) {
      if (counter.verdict.wrong++ == 0)
        counter.verdict.first = "the input's element " + std::to_string(i) + " was changed";
    }
  }
  return counter.verdict;
}

}  // namespace nearlight::bench
