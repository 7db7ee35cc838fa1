#include "cli/bench/reference.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/support/reference.hpp"

namespace nearlight::bench {
namespace {

std::vector<std::byte> input(DataType type, ReduceOp op, std::size_t count, std::uint64_t seed, int rank) {
  std::vector<std::byte> data(count * size_of(type));
  fill_input(data, type, op, seed, rank);
  return data;
}

std::uint64_t load(DataType type, const std::vector<std::byte>& from, std::size_t index) {
  return test::load_bits(type, from.data(), index);
}

// The all-reduce of everybody's inputs, by the reference of the library's own tests.
std::vector<std::byte> honest_result(DataType type, ReduceOp op, std::size_t count, std::uint64_t seed,
                                     int nranks) {
  std::vector<std::vector<std::byte>> inputs;
  std::vector<std::uint64_t> factors;
  for (int rank = 0; rank < nranks; ++rank) {
    inputs.push_back(input(type, op, count, seed, rank));
    const Reduction reduction = reduction_of(type, op, rank);
    factors.push_back(reduction.factor ? reduction.factor->bits : 0);
  }
  std::vector<std::byte> out(count * size_of(type));
  std::vector<std::uint64_t> bits(static_cast<std::size_t>(nranks));
  for (std::size_t i = 0; i < count; ++i) {
    for (std::size_t rank = 0; rank < bits.size(); ++rank) bits[rank] = load(type, inputs[rank], i);
    test::store_bits(type, out.data(), i, test::reduce_reference(type, op, bits, factors));
  }
  return out;
}

TEST(Reference, TakesTheRightResult) {
  for (const DataType type : kDataTypes) {
    for (const ReduceOp op : kReduceOps) {
      for (int nranks = 1; nranks <= 8; ++nranks) {
        const auto result = honest_result(type, op, 500, 7, nranks);
        const Verdict verdict = compare(result, type, op, 7, nranks);
        EXPECT_EQ(verdict.wrong, 0u) << name_of(type) << " " << name_of(op) << " " << nranks << ": "
                                     << verdict.first;
      }
    }
  }
}

// Whoever adds in another order gets the same bits: that is what the inputs are chosen for.
TEST(Reference, InputsReduceExactlyInAnyOrder) {
  for (const DataType type : kDataTypes) {
    for (const ReduceOp op : kReduceOps) {
      if (op == ReduceOp::premul_sum) continue;  // the factors belong to the ranks
      std::vector<std::vector<std::byte>> inputs;
      for (int rank = 0; rank < 8; ++rank) inputs.push_back(input(type, op, 500, 3, rank));
      std::vector<std::uint64_t> forward, backward;
      for (std::size_t i = 0; i < 500; ++i) {
        forward.clear();
        for (const auto& one : inputs) forward.push_back(load(type, one, i));
        backward.assign(forward.rbegin(), forward.rend());
        ASSERT_EQ(test::reduce_reference(type, op, forward), test::reduce_reference(type, op, backward))
            << name_of(type) << " " << name_of(op);
      }
    }
  }
}

TEST(Reference, FindsEveryFlippedBit) {
  for (const DataType type : kDataTypes) {
    for (const ReduceOp op : kReduceOps) {
      auto result = honest_result(type, op, 60, 3, 4);
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
    // A byte may be what the poison is by chance.
    const std::size_t most = size_of(type) == 1 && is_integer(type) ? 90 : 100;
    EXPECT_GE(compare(result, type, ReduceOp::sum, 1, 2).wrong, most) << name_of(type);
    EXPECT_GE(compare(result, type, ReduceOp::max, 1, 2).wrong, most) << name_of(type);
    EXPECT_GT(compare(input(type, ReduceOp::sum, 100, 1, 0), type, ReduceOp::sum, 1, 2).wrong, 90u)
        << name_of(type);
  }
}

TEST(Reference, RoundingAtEveryStepIsForgivenOnlyWhereItIsExpected) {
  // Truncated instead of rounded: off by one unit where the sum is not exact.
  for (const DataType type : {DataType::bf16, DataType::f16, DataType::f8e4m3, DataType::f8e5m2}) {
    auto result = honest_result(type, ReduceOp::sum, 1000, 5, 8);
    test::store_bits(type, result.data(), 0, load(type, result, 0) + 1);
    EXPECT_EQ(compare(result, type, ReduceOp::sum, 5, 8, 1).wrong, 1u);
    EXPECT_EQ(compare(result, type, ReduceOp::sum, 5, 8, 8).wrong, 0u);
    EXPECT_EQ(compare(result, type, ReduceOp::max, 5, 8, 8).wrong > 0, true);
  }
  auto result = honest_result(DataType::f32, ReduceOp::sum, 1000, 5, 8);
  result[0] ^= std::byte{1};
  EXPECT_EQ(compare(result, DataType::f32, ReduceOp::sum, 5, 8, 8).wrong, 1u) << "f32 needs no rounding";
}

TEST(Reference, SeedsAndRanksDiffer) {
  for (const DataType type : kDataTypes) {
    const auto of = [&](std::uint64_t seed, int rank) { return input(type, ReduceOp::sum, 16, seed, rank); };
    EXPECT_NE(of(1, 0), of(2, 0));
    EXPECT_NE(of(1, 0), of(1, 1));
    auto own = of(1, 0);
    EXPECT_EQ(compare_input(own, type, ReduceOp::sum, 1, 0).wrong, 0u);
    own[5] ^= std::byte{1};
    EXPECT_EQ(compare_input(own, type, ReduceOp::sum, 1, 0).wrong, 1u);
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
