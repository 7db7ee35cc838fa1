#include <gtest/gtest.h>

#include <set>
#include <string>

#include "base/types.hpp"

namespace nearlight {
namespace {

TEST(Types, HaveTheNumbersOfNccl) {
  int number = 0;
  for (const DataType type :
       {DataType::i8, DataType::u8, DataType::i32, DataType::u32, DataType::i64, DataType::u64, DataType::f16,
        DataType::f32, DataType::f64, DataType::bf16, DataType::f8e4m3, DataType::f8e5m2}) {
    EXPECT_EQ(static_cast<int>(type), number++);
  }
  EXPECT_EQ(std::size(kDataTypes), 12u);
  EXPECT_EQ(static_cast<int>(ReduceOp::sum), 0);
  EXPECT_EQ(static_cast<int>(ReduceOp::prod), 1);
  EXPECT_EQ(static_cast<int>(ReduceOp::max), 2);
  EXPECT_EQ(static_cast<int>(ReduceOp::min), 3);
  EXPECT_EQ(static_cast<int>(ReduceOp::avg), 4);
}

TEST(Types, Sizes) {
  constexpr std::size_t kSizes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
  for (int number = -3; number < 40; ++number) {
    const auto type = static_cast<DataType>(number);
    EXPECT_EQ(size_of(type), number >= 0 && number < 12 ? kSizes[number] : 0) << number;
    EXPECT_EQ(is_valid(static_cast<ReduceOp>(number)), number >= 0 && number <= 5) << number;
    const bool integer =
        with_type(type, [](auto tag) { return std::is_integral_v<typename decltype(tag)::type>; });
    EXPECT_EQ(is_integer(type), integer) << number;
  }
}

TEST(Types, NamesAreUnderstoodAgain) {
  std::set<std::string> names;
  for (const DataType type : kDataTypes) {
    EXPECT_EQ(parse_data_type(name_of(type)), type);
    EXPECT_EQ(parse_data_type(short_name_of(type)), type);
    names.insert({name_of(type), short_name_of(type)});
    EXPECT_NE(std::string(data_type_names()).find(name_of(type)), std::string::npos);
  }
  EXPECT_EQ(names.size(), 2 * std::size(kDataTypes));
  for (const ReduceOp op : kReduceOps) {
    EXPECT_EQ(parse_reduce_op(name_of(op)), op);
    EXPECT_NE(std::string(reduce_op_names()).find(name_of(op)), std::string::npos);
  }
  // As nccl-tests has them.
  EXPECT_EQ(parse_data_type("half"), DataType::f16);
  EXPECT_EQ(parse_data_type("double"), DataType::f64);
  EXPECT_EQ(parse_data_type("uint64"), DataType::u64);
  EXPECT_EQ(parse_data_type("fp8_e4m3"), DataType::f8e4m3);
  EXPECT_EQ(parse_reduce_op("mulsum"), ReduceOp::premul_sum);
}

TEST(Types, OtherNamesAreNot) {
  for (const char* name : {"", "float64", "Float", "f3", "f322", "invalid", " f32", "fp8", "all"}) {
    EXPECT_EQ(parse_data_type(name), std::nullopt) << name;
    EXPECT_EQ(parse_reduce_op(name), std::nullopt) << name;
  }
  EXPECT_STREQ(name_of(static_cast<DataType>(12)), "invalid");
  EXPECT_STREQ(short_name_of(static_cast<DataType>(-1)), "invalid");
  EXPECT_STREQ(name_of(static_cast<ReduceOp>(6)), "invalid");
}

TEST(Reduction, TakesAnElementAsFactor) {
  const Reduction sum = ReduceOp::sum;
  EXPECT_FALSE(sum.factor.has_value());
  const std::uint16_t half = 0x3c00;
  const Reduction scaled = Reduction::premul_sum(DataType::f16, &half);
  EXPECT_EQ(scaled.op, ReduceOp::premul_sum);
  ASSERT_TRUE(scaled.factor.has_value());
  EXPECT_EQ(scaled.factor->type, DataType::f16);
  EXPECT_EQ(scaled.factor->bits, 0x3c00u);
}

}  // namespace
}  // namespace nearlight
