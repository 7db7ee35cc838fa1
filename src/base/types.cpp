#include "base/types.hpp"

namespace nearlight {

const char* name_of(DataType type) {
  switch (type) {
    case DataType::i32:
      return "int32";
    case DataType::f32:
      return "float";
    case DataType::bf16:
      return "bfloat16";
  }
  return "invalid";
}

const char* name_of(ReduceOp op) {
  switch (op) {
    case ReduceOp::sum:
      return "sum";
    case ReduceOp::max:
      return "max";
  }
  return "invalid";
}

std::optional<DataType> parse_data_type(std::string_view text) {
  if (text == "int32" || text == "i32" || text == "int") return DataType::i32;
  if (text == "float" || text == "f32") return DataType::f32;
  if (text == "bfloat16" || text == "bf16") return DataType::bf16;
  return std::nullopt;
}

std::optional<ReduceOp> parse_reduce_op(std::string_view text) {
  if (text == "sum") return ReduceOp::sum;
  if (text == "max") return ReduceOp::max;
  return std::nullopt;
}

}  // namespace nearlight
