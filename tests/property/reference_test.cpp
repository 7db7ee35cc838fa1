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

TEST(Reference, KnowsTheFormats) {
  EXPECT_EQ(value_of(DataType::f16, 0x3c00), 1.0);
  EXPECT_EQ(value_of(DataType::f16, 0x7bff), 65504.0);
  EXPECT_EQ(value_of(DataType::f16, 0x0001), 0x1p-24);
  EXPECT_EQ(value_of(DataType::f16, 0xfc00), -HUGE_VAL);
  EXPECT_EQ(value_of(DataType::f8e4m3, 0x38), 1.0);
  EXPECT_EQ(value_of(DataType::f8e4m3, 0x7e), 448.0);
  EXPECT_EQ(value_of(DataType::f8e4m3, 0x81), -0x1p-9);
  EXPECT_TRUE(is_nan(DataType::f8e4m3, 0x7f) && is_nan(DataType::f8e4m3, 0xff));
  EXPECT_FALSE(is_nan(DataType::f8e4m3, 0x78));  // 256: no infinity, no NaN
  EXPECT_EQ(value_of(DataType::f8e5m2, 0x3c), 1.0);
  EXPECT_EQ(value_of(DataType::f8e5m2, 0x7b), 57344.0);
  EXPECT_EQ(value_of(DataType::f8e5m2, 0x7c), HUGE_VAL);
  EXPECT_EQ(value_of(DataType::f8e5m2, 0x01), 0x1p-16);
  EXPECT_EQ(round_to(DataType::f16, 65519.9), 0x7bffu);
  EXPECT_EQ(round_to(DataType::f16, 65520.0), 0x7c00u);
  EXPECT_EQ(round_to(DataType::f8e4m3, 1e9), 0x7eu);
  EXPECT_EQ(round_to(DataType::f8e4m3, -HUGE_VAL), 0xfeu);
  EXPECT_EQ(round_to(DataType::f8e5m2, HUGE_VAL), 0x7bu);
  EXPECT_EQ(round_to(DataType::f8e5m2, std::nan("")), 0x7fu);
  EXPECT_EQ(value_of(DataType::i8, 0x80), -128.0);
  EXPECT_EQ(value_of(DataType::u8, 0x80), 128.0);
}

// Every number of a small float is itself, and every point between two neighbours goes to one of them.
TEST(Reference, EverySmallFloatIsItself) {
  for (const DataType type : {DataType::bf16, DataType::f16, DataType::f8e4m3, DataType::f8e5m2}) {
    const std::uint64_t codes = std::uint64_t{1} << 8 * size_of(type), sign = codes / 2;
    for (std::uint64_t bits = 0; bits < codes; ++bits) {
      if (is_nan(type, bits) || std::isinf(value_of(type, bits))) continue;
      ASSERT_EQ(round_to(type, value_of(type, bits)), bits) << name_of(type);
      const bool has_next = !is_nan(type, bits + 1) && !std::isinf(value_of(type, bits + 1));
      if ((bits & ~sign) == sign - 1 || !has_next) continue;
      const double here = value_of(type, bits), next = value_of(type, bits + 1);
      ASSERT_EQ(round_to(type, here + (next - here) * 0.49), bits) << name_of(type);
      ASSERT_EQ(round_to(type, here + (next - here) * 0.51), bits + 1) << name_of(type);
      ASSERT_EQ(round_to(type, here + (next - here) * 0.5), bits + bits % 2) << name_of(type);
    }
  }
}

TEST(Reference, ReducesInRankOrder) {
  const auto bits = [](float value) -> std::uint64_t { return std::bit_cast<std::uint32_t>(value); };
  const std::uint64_t big_first[] = {bits(16777216), bits(1), bits(-16777216)};
  EXPECT_EQ(reduce_reference(DataType::f32, ReduceOp::sum, big_first), bits(0));
  const std::uint64_t big_last[] = {bits(16777216), bits(-16777216), bits(1)};
  EXPECT_EQ(reduce_reference(DataType::f32, ReduceOp::sum, big_last), bits(1));
  const std::uint64_t integers[] = {0x7fffffff, 2};
  EXPECT_EQ(reduce_reference(DataType::i32, ReduceOp::sum, integers), 0x80000001u);
  EXPECT_EQ(reduce_reference(DataType::i32, ReduceOp::max, integers), 0x7fffffffu);
}

TEST(Reference, KnowsTheOperators) {
  const std::uint64_t bytes[] = {0x90, 0x70};
  EXPECT_EQ(reduce_reference(DataType::i8, ReduceOp::min, bytes), 0x90u);
  EXPECT_EQ(reduce_reference(DataType::u8, ReduceOp::min, bytes), 0x70u);
  EXPECT_EQ(reduce_reference(DataType::u8, ReduceOp::prod, bytes), 0x00u);
  EXPECT_EQ(reduce_reference(DataType::i8, ReduceOp::avg, bytes), 0u);
  const std::uint64_t negative[] = {0xfe, 0xff}, factors[] = {3, 1};
  EXPECT_EQ(reduce_reference(DataType::i8, ReduceOp::avg, negative), 0xffu);  // -3 / 2
  EXPECT_EQ(reduce_reference(DataType::u8, ReduceOp::avg, negative), 0x7eu);  // 253 / 2
  EXPECT_EQ(reduce_reference(DataType::i8, ReduceOp::premul_sum, negative, factors), 0xf9u);
  const std::uint64_t zeros[] = {0x8000, 0};
  EXPECT_EQ(reduce_reference(DataType::f16, ReduceOp::max, zeros), 0u);
  EXPECT_EQ(reduce_reference(DataType::f16, ReduceOp::min, zeros), 0x8000u);
  const std::uint64_t alone[] = {0x7c01};
  EXPECT_EQ(reduce_reference(DataType::f16, ReduceOp::sum, alone), 0x7c01u);
}

TEST(Reference, GivesOneNan) {
  const std::uint64_t with_nan[] = {0xffc00001, 0x40000000};
  EXPECT_EQ(reduce_reference(DataType::f32, ReduceOp::sum, with_nan), 0x7fffffffu);
  EXPECT_EQ(reduce_reference(DataType::f32, ReduceOp::max, with_nan), 0x40000000u);
  const std::uint64_t only[] = {0x7d, 0xff};
  EXPECT_EQ(reduce_reference(DataType::f8e5m2, ReduceOp::min, only), 0x7fu);
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
