#include "algorithm/cuda/parts_kernels.cuh"

namespace nearlight::algorithm::cuda {

PartsKernel pick_reduced_integer(DataType type, Protocol protocol, int nranks) {
  switch (type) {
    case DataType::i8:
      return pick_reduced<std::int8_t>(protocol, nranks);
    case DataType::u8:
      return pick_reduced<std::uint8_t>(protocol, nranks);
    case DataType::i32:
      return pick_reduced<std::int32_t>(protocol, nranks);
    case DataType::u32:
      return pick_reduced<std::uint32_t>(protocol, nranks);
    case DataType::i64:
      return pick_reduced<std::int64_t>(protocol, nranks);
    case DataType::u64:
      return pick_reduced<std::uint64_t>(protocol, nranks);
    default:
      return nullptr;
  }
}

}  // namespace nearlight::algorithm::cuda
