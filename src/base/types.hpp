// Element types and reduction operators. Numbers are NCCL's (ncclDataType_t, ncclRedOp_t).
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string_view>
#include <type_traits>

namespace nearlight {

enum class DataType : int {
  i8 = 0,
  u8 = 1,
  i32 = 2,
  u32 = 3,
  i64 = 4,
  u64 = 5,
  f16 = 6,
  f32 = 7,
  f64 = 8,
  bf16 = 9,
  f8e4m3 = 10,
  f8e5m2 = 11
};
// premul_sum has no number in NCCL, whose numbers from 5 on are operators made by a call: 5 is ours.
enum class ReduceOp : int { sum = 0, prod = 1, max = 2, min = 3, avg = 4, premul_sum = 5 };

inline constexpr DataType kDataTypes[] = {DataType::i8,  DataType::u8,   DataType::i32,    DataType::u32,
                                          DataType::i64, DataType::u64,  DataType::f16,    DataType::f32,
                                          DataType::f64, DataType::bf16, DataType::f8e4m3, DataType::f8e5m2};
inline constexpr ReduceOp kReduceOps[] = {ReduceOp::sum, ReduceOp::prod, ReduceOp::max,
                                          ReduceOp::min, ReduceOp::avg,  ReduceOp::premul_sum};

// The storage of floats that C++20 has no type for. Bf16: the upper half of an IEEE binary32. F16: IEEE
// binary16. F8e4m3: no infinities, NaN is 0x7f and 0xff, the largest number 448. F8e5m2: the upper half of a
// binary16, the largest number 57344.
struct Bf16 {
  std::uint16_t bits;
};
struct F16 {
  std::uint16_t bits;
};
struct F8e4m3 {
  std::uint8_t bits;
};
struct F8e5m2 {
  std::uint8_t bits;
};

template <class T>
struct TypeTag {
  using type = T;
};
// Calls f(TypeTag<T>{}) with the C++ type of `type`, TypeTag<void> for a value that is no DataType.
template <class F>
constexpr auto with_type(DataType type, F&& f) {
  switch (type) {
    case DataType::i8:
      return f(TypeTag<std::int8_t>{});
    case DataType::u8:
      return f(TypeTag<std::uint8_t>{});
    case DataType::i32:
      return f(TypeTag<std::int32_t>{});
    case DataType::u32:
      return f(TypeTag<std::uint32_t>{});
    case DataType::i64:
      return f(TypeTag<std::int64_t>{});
    case DataType::u64:
      return f(TypeTag<std::uint64_t>{});
    case DataType::f16:
      return f(TypeTag<F16>{});
    case DataType::f32:
      return f(TypeTag<float>{});
    case DataType::f64:
      return f(TypeTag<double>{});
    case DataType::bf16:
      return f(TypeTag<Bf16>{});
    case DataType::f8e4m3:
      return f(TypeTag<F8e4m3>{});
    case DataType::f8e5m2:
      return f(TypeTag<F8e5m2>{});
  }
  return f(TypeTag<void>{});
}

// Bytes of one element; 0 for a value that is no DataType.
constexpr std::size_t size_of(DataType type) {
  return with_type(type, [](auto tag) -> std::size_t {
    using T = typename decltype(tag)::type;
    if constexpr (std::is_void_v<T>) {
      return 0;
    } else {
      return sizeof(T);
    }
  });
}

constexpr bool is_valid(ReduceOp op) { return op >= ReduceOp::sum && op <= ReduceOp::premul_sum; }
constexpr bool is_integer(DataType type) { return type >= DataType::i8 && type <= DataType::u64; }

// What one call does with the elements. An operator stands for itself; a pre-multiplied sum also needs the
// factor that this rank multiplies its contribution by, and that may differ between the ranks.
struct Reduction {
  // One element: its type, and its bits in the lower bytes.
  struct Factor {
    DataType type;
    std::uint64_t bits;
  };

  constexpr Reduction(ReduceOp which) : op(which) {}  // NOLINT: an operator is a reduction
  // `factor` points to one element of `type` in host memory; it is read at once.
  static Reduction premul_sum(DataType type, const void* factor) {
    Reduction reduction(ReduceOp::premul_sum);
    reduction.factor = Factor{type, 0};
    std::memcpy(&reduction.factor->bits, factor, size_of(type));
    return reduction;
  }

  ReduceOp op;
  std::optional<Factor> factor;  // premul_sum only
};

// Names as nccl-tests prints and takes them: "int8", "half", "float", "bfloat16", "fp8_e4m3", ...; "sum",
// "prod", "mulsum", ... "invalid" for anything else.
const char* name_of(DataType type);
const char* name_of(ReduceOp op);
// As in result files and workloads: "i8", "f16", "f32", "f8e4m3", ...
const char* short_name_of(DataType type);
// Takes the names of both kinds.
std::optional<DataType> parse_data_type(std::string_view text);
std::optional<ReduceOp> parse_reduce_op(std::string_view text);
// All names of the first kind, by commas.
const char* data_type_names();
const char* reduce_op_names();

}  // namespace nearlight
