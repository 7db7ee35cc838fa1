// The reference of the other tests, checked by hand and by brute force.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "tests/support/guarded.hpp"
#include "tests/support/reference.hpp"

namespace nearlight::test {
namespace {

TEST(Reference, RoundsToTheNearestBf16) {
  EXPECT_EQ(round_to(DataType::bf16, 1.0), 0x3f80u);
  EXPECT_EQ(round_to(DataType::bf16, -2.5), 0xc020u);
  EXPECT_EQ(round_to(DataType::bf16, 1.0 + 1.0 / 256), 0x3f80u);  // tie, even below
  EXPECT_EQ(round_to(DataType::bf16, 1.0 + 3.0 / 256), 0x3f82u);  // tie, even above
  EXPECT_EQ(round_to(DataType::bf16, 1.0 + 1.0 / 256 + 1e-12), 0x3f81u);
  EXPECT_EQ(round_to(DataType::bf16, 0x1p128 - 0x1p119), 0x7f80u);  // the tie behind the largest number
  EXPECT_EQ(round_to(DataType::bf16, 0x1p128 - 0x1p119 - 0x1p80), 0x7f7fu);
  EXPECT_EQ(round_to(DataType::bf16, 0x1p-133), 0x0001u);
  EXPECT_EQ(round_to(DataType::bf16, 0x1p-134), 0x0000u);  // tie, even below
  EXPECT_EQ(round_to(DataType::bf16, -0x1.8p-134), 0x8001u);
  EXPECT_EQ(round_to(DataType::bf16, -0.0), 0x8000u);
  EXPECT_TRUE(is_nan(DataType::bf16, round_to(DataType::bf16, std::nan(""))));
}

// Every bf16 is itself, and every point between two neighbours goes to one of them.
TEST(Reference, EveryBf16IsItself) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    if (is_nan(DataType::bf16, bits)) continue;
    ASSERT_EQ(round_to(DataType::bf16, value_of(DataType::bf16, bits)), bits);
    if ((bits & 0x7fff) >= 0x7f7f) continue;
    const double here = value_of(DataType::bf16, bits), next = value_of(DataType::bf16, bits + 1);
    ASSERT_EQ(round_to(DataType::bf16, here + (next - here) * 0.49), bits);
    ASSERT_EQ(round_to(DataType::bf16, here + (next - here) * 0.51), bits + 1);
    ASSERT_EQ(round_to(DataType::bf16, here + (next - here) * 0.5), bits + bits % 2);
  }
}

TEST(Reference, ReducesInRankOrder) {
  const auto bits = [](float value) { return std::bit_cast<std::uint32_t>(value); };
  const std::uint32_t big_first[] = {bits(16777216), bits(1), bits(-16777216)};
  EXPECT_EQ(reduce_reference(DataType::f32, ReduceOp::sum, big_first).bits, bits(0));
  const std::uint32_t big_last[] = {bits(16777216), bits(-16777216), bits(1)};
  EXPECT_EQ(reduce_reference(DataType::f32, ReduceOp::sum, big_last).bits, bits(1));
  const std::uint32_t integers[] = {0x7fffffff, 2};
  EXPECT_EQ(reduce_reference(DataType::i32, ReduceOp::sum, integers).bits, 0x80000001u);
  EXPECT_EQ(reduce_reference(DataType::i32, ReduceOp::max, integers).bits, 0x7fffffffu);
}

TEST(Reference, SeesAWrongBit) {
  const std::uint32_t inputs[] = {0x3f800000, 0x40000000};
  const Expected expected = reduce_reference(DataType::f32, ReduceOp::sum, inputs);
  EXPECT_TRUE(expected.matches(DataType::f32, 0x40400000));
  EXPECT_FALSE(expected.matches(DataType::f32, 0x40400001));
  const std::uint32_t with_nan[] = {0x7fc00000, 0x40000000};
  const Expected nan = reduce_reference(DataType::f32, ReduceOp::sum, with_nan);
  EXPECT_TRUE(nan.matches(DataType::f32, 0xffc12345));
  EXPECT_FALSE(nan.matches(DataType::f32, 0x7f800000));
}

TEST(Guards, SeeEveryByteAroundTheBuffer) {
  Guarded guarded(100);
  for (const std::size_t from_end : {std::size_t{0}, std::size_t{1}, std::size_t{12}, Guarded::kAfter}) {
    for (std::ptrdiff_t at = -static_cast<std::ptrdiff_t>(Guarded::kBefore);
         at < static_cast<std::ptrdiff_t>(100 + from_end); ++at) {
      std::byte* const data = guarded.place(100, from_end);
      EXPECT_TRUE(guarded.whole());
      data[at] = std::byte{0};
      EXPECT_EQ(guarded.whole(), at >= 0 && at < 100);
    }
  }
}

TEST(GuardsDeathTest, EndAtAPageThatCannotBeTouched) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  Guarded guarded(100);
  volatile std::byte* const data = guarded.place(100, 0);
  EXPECT_DEATH(data[100] = std::byte{0}, "");
}

}  // namespace
}  // namespace nearlight::test
