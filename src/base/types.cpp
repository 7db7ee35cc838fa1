#include "base/types.hpp"

#include <string>

namespace nearlight {

namespace {

template <class List>
std::string names(const List& list) {
  std::string all;
  for (const auto one : list) all += (all.empty() ? "" : ", ") + std::string(name_of(one));
  return all;
}

}  // namespace

const char* name_of(DataType type) {
  switch (type) {
    case DataType::i8:
      return "int8";
    case DataType::u8:
      return "uint8";
    case DataType::i32:
      return "int32";
    case DataType::u32:
      return "uint32";
    case DataType::i64:
      return "int64";
    case DataType::u64:
      return "uint64";
    case DataType::f16:
      return "half";
    case DataType::f32:
      return "float";
    case DataType::f64:
      return "double";
    case DataType::bf16:
      return "bfloat16";
    case DataType::f8e4m3:
      return "fp8_e4m3";
    case DataType::f8e5m2:
      return "fp8_e5m2";
  }
  return "invalid";
}

const char* short_name_of(DataType type) {
  switch (type) {
    case DataType::i8:
      return "i8";
    case DataType::u8:
      return "u8";
    case DataType::i32:
      return "i32";
    case DataType::u32:
      return "u32";
    case DataType::i64:
      return "i64";
    case DataType::u64:
      return "u64";
    case DataType::f16:
      return "f16";
    case DataType::f32:
      return "f32";
    case DataType::f64:
      return "f64";
    case DataType::bf16:
      return "bf16";
    case DataType::f8e4m3:
      return "f8e4m3";
    case DataType::f8e5m2:
      return "f8e5m2";
  }
  return "invalid";
}

const char* name_of(ReduceOp op) {
  switch (op) {
    case ReduceOp::sum:
      return "sum";
    case ReduceOp::prod:
      return "prod";
    case ReduceOp::max:
      return "max";
    case ReduceOp::min:
      return "min";
    case ReduceOp::avg:
      return "avg";
    case ReduceOp::premul_sum:
      return "mulsum";
  }
  return "invalid";
}

std::optional<DataType> parse_data_type(std::string_view text) {
  for (const DataType type : kDataTypes) {
    if (text == name_of(type) || text == short_name_of(type)) return type;
  }
  if (text == "int") return DataType::i32;
  return std::nullopt;
}

std::optional<ReduceOp> parse_reduce_op(std::string_view text) {
  for (const ReduceOp op : kReduceOps) {
    if (text == name_of(op)) return op;
  }
  return std::nullopt;
}

const char* data_type_names() {
  static const std::string all = names(kDataTypes);
  return all.c_str();
}

const char* reduce_op_names() {
  static const std::string all = names(kReduceOps);
  return all.c_str();
}

}  // namespace nearlight
