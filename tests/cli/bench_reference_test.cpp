#include "cli/bench/reference.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

namespace nearlight::bench {
namespace {

std::vector<std::byte> input(DataType type, std::size_t count, std::uint64_t seed, int rank) {
  std::vector<std::byte> data(count * size_of(type));
  fill_input(data, type, seed, rank);
  return data;
}

// The all-reduce of everybody's inputs, in double or wrapping integers, rounded by the machine.
std::vector<std::byte> honest_result(DataType type, ReduceOp op, std::size_t count, std::uint64_t seed,
                                     int nranks) {
  std::vector<std::byte> out(count * size_of(type));
  for (std::size_t i = 0; i < count; ++i) {
    double value = input_value(type, seed, 0, i);
    for (int rank = 1; rank < nranks; ++rank) {
      const double other = input_value(type, seed, rank, i);
      value = op == ReduceOp::sum ? value + other : std::max(value, other);
    }
    if (type == DataType::i32) {
      const auto wrapped = static_cast<std::int32_t>(static_cast<std::int64_t>(value));
      std::memcpy(&out[i * 4], &wrapped, 4);
    } else if (type == DataType::f32) {
      const auto rounded = static_cast<float>(value);
      EXPECT_EQ(rounded, value) << "the inputs must have an exact sum";
      std::memcpy(&out[i * 4], &rounded, 4);
    } else {
      // To nearest even, by the definition: 8 significant bits.
      const double unit = std::ldexp(1.0, std::ilogb(value == 0 ? 1.0 : value) - 7);
      const auto rounded = static_cast<float>(std::nearbyint(value / unit) * unit);
      std::memcpy(&out[i * 2], reinterpret_cast<const char*>(&rounded) + 2, 2);
    }
  }
  return out;
}

TEST(Reference, TakesTheRightResult) {
  for (const DataType type : kDataTypes) {
    for (const ReduceOp op : kReduceOps) {
      for (int nranks = 1; nranks <= 8; ++nranks) {
        const auto result = honest_result(type, op, 3000, 7, nranks);
        const Verdict verdict = compare(result, type, op, 7, nranks);
        EXPECT_EQ(verdict.wrong, 0u) << name_of(type) << " " << name_of(op) << " " << nranks << ": "
                                     << verdict.first;
      }
    }
  }
}

TEST(Reference, FindsEveryFlippedBit) {
  for (const DataType type : kDataTypes) {
    for (const ReduceOp op : kReduceOps) {
      auto result = honest_result(type, op, 100, 3, 4);
      for (std::size_t bit = 0; bit < result.size() * 8; ++bit) {
        result[bit / 8] ^= std::byte(1 << bit % 8);
        const Verdict verdict = compare(result, type, op, 3, 4);
        ASSERT_EQ(verdict.wrong, 1u) << name_of(type) << " bit " << bit;
        ASSERT_NE(verdict.first.find("element " + std::to_string(bit / 8 / size_of(type)) + " "),
                  std::string::npos)
            << verdict.first;
        result[bit / 8] ^= std::byte(1 << bit % 8);
      }
    }
  }
}

TEST(Reference, PoisonAndTheInputItselfAreWrong) {
  for (const DataType type : kDataTypes) {
    std::vector<std::byte> result(100 * size_of(type));
    fill_poison(result);
    EXPECT_EQ(compare(result, type, ReduceOp::sum, 1, 2).wrong, 100u) << name_of(type);
    EXPECT_EQ(compare(result, type, ReduceOp::max, 1, 2).wrong, 100u) << name_of(type);
    EXPECT_GT(compare(input(type, 100, 1, 0), type, ReduceOp::sum, 1, 2).wrong, 90u) << name_of(type);
  }
}

TEST(Reference, RoundingAtEveryStepIsForgivenOnlyWhereItIsExpected) {
  // bfloat16 truncated instead of rounded: off by one unit where the sum is not exact.
  auto result = honest_result(DataType::bf16, ReduceOp::sum, 1000, 5, 8);
  std::uint16_t bits;
  std::memcpy(&bits, &result[0], 2);
  bits = static_cast<std::uint16_t>(bits + 1);
  std::memcpy(&result[0], &bits, 2);
  EXPECT_EQ(compare(result, DataType::bf16, ReduceOp::sum, 5, 8, 1).wrong, 1u);
  EXPECT_EQ(compare(result, DataType::bf16, ReduceOp::sum, 5, 8, 8).wrong, 0u);
}

TEST(Reference, SeedsAndRanksDiffer) {
  for (const DataType type : kDataTypes) {
    EXPECT_NE(input(type, 16, 1, 0), input(type, 16, 2, 0));
    EXPECT_NE(input(type, 16, 1, 0), input(type, 16, 1, 1));
    auto own = input(type, 16, 1, 0);
    EXPECT_EQ(compare_input(own, type, 1, 0).wrong, 0u);
    own[5] ^= std::byte{1};
    EXPECT_EQ(compare_input(own, type, 1, 0).wrong, 1u);
  }
}

TEST(Reference, GuardsShowEveryChangedByte) {
  std::vector<std::byte> guard(kGuardBytes);
  fill_guard(guard);
  EXPECT_EQ(changed_guard_bytes(guard), 0u);
  guard.front() = std::byte{0};
  guard.back() = std::byte{0xff};
  EXPECT_EQ(changed_guard_bytes(guard), 2u);
}

}  // namespace
}  // namespace nearlight::bench
