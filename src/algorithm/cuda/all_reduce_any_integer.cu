#include "algorithm/cuda/all_reduce_any.cuh"

namespace nearlight::algorithm::cuda {

Kernel pick_any_integer(DataType type, const Pick& pick) {
  switch (type) {
    case DataType::i8:
      return pick_any<std::int8_t>(pick);
    case DataType::u8:
      return pick_any<std::uint8_t>(pick);
    case DataType::i32:
      return pick_any<std::int32_t>(pick);
    case DataType::u32:
      return pick_any<std::uint32_t>(pick);
    case DataType::i64:
      return pick_any<std::int64_t>(pick);
    case DataType::u64:
      return pick_any<std::uint64_t>(pick);
    default:
      return nullptr;
  }
}

}  // namespace nearlight::algorithm::cuda
