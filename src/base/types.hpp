// Element types and reduction operators. Numbers are NCCL's (ncclDataType_t, ncclRedOp_t).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace nearlight {

enum class DataType : int { i32 = 2, f32 = 7, bf16 = 9 };
enum class ReduceOp : int { sum = 0, max = 2 };

inline constexpr DataType kDataTypes[] = {DataType::i32, DataType::f32, DataType::bf16};
inline constexpr ReduceOp kReduceOps[] = {ReduceOp::sum, ReduceOp::max};

// The storage of one bfloat16: the upper half of an IEEE binary32.
struct Bf16 {
  std::uint16_t bits;
};

// Bytes of one element; 0 for a value that is no DataType.
constexpr std::size_t size_of(DataType type) {
  switch (type) {
    case DataType::i32:
    case DataType::f32:
      return 4;
    case DataType::bf16:
      return 2;
  }
  return 0;
}

constexpr bool is_valid(ReduceOp op) { return op == ReduceOp::sum || op == ReduceOp::max; }

// Names as nccl-tests prints and takes them: "int32", "float", "bfloat16"; "sum", "max". "invalid" for
// anything else.
const char* name_of(DataType type);
const char* name_of(ReduceOp op);
// Takes those names and the short ones: i32, f32, bf16.
std::optional<DataType> parse_data_type(std::string_view text);
std::optional<ReduceOp> parse_reduce_op(std::string_view text);

}  // namespace nearlight
