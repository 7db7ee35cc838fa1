#include <gtest/gtest.h>

#include "base/types.hpp"

namespace nearlight {
namespace {

TEST(Types, HaveTheNumbersOfNccl) {
  EXPECT_EQ(static_cast<int>(DataType::i32), 2);
  EXPECT_EQ(static_cast<int>(DataType::f32), 7);
  EXPECT_EQ(static_cast<int>(DataType::bf16), 9);
  EXPECT_EQ(static_cast<int>(ReduceOp::sum), 0);
  EXPECT_EQ(static_cast<int>(ReduceOp::max), 2);
}

TEST(Types, Sizes) {
  EXPECT_EQ(size_of(DataType::i32), sizeof(std::int32_t));
  EXPECT_EQ(size_of(DataType::f32), sizeof(float));
  EXPECT_EQ(size_of(DataType::bf16), sizeof(Bf16));
  for (int number = -3; number < 40; ++number) {
    const bool known = number == 2 || number == 7 || number == 9;
    EXPECT_EQ(size_of(static_cast<DataType>(number)) != 0, known) << number;
    EXPECT_EQ(is_valid(static_cast<ReduceOp>(number)), number == 0 || number == 2) << number;
  }
}

TEST(Types, NamesAreUnderstoodAgain) {
  for (const DataType type : kDataTypes) EXPECT_EQ(parse_data_type(name_of(type)), type);
  for (const ReduceOp op : kReduceOps) EXPECT_EQ(parse_reduce_op(name_of(op)), op);
  EXPECT_EQ(parse_data_type("i32"), DataType::i32);
  EXPECT_EQ(parse_data_type("f32"), DataType::f32);
  EXPECT_EQ(parse_data_type("bf16"), DataType::bf16);
}

TEST(Types, OtherNamesAreNot) {
  for (const char* name : {"", "float64", "Float", "f3", "f322", "invalid", " f32"}) {
    EXPECT_EQ(parse_data_type(name), std::nullopt) << name;
    EXPECT_EQ(parse_reduce_op(name), std::nullopt) << name;
  }
  EXPECT_STREQ(name_of(static_cast<DataType>(1)), "invalid");
  EXPECT_STREQ(name_of(static_cast<ReduceOp>(1)), "invalid");
}

}  // namespace
}  // namespace nearlight
