#include "algorithm/cuda/all_reduce_any.cuh"

namespace nearlight::algorithm::cuda {

Kernel pick_any_small_float(DataType type, const Pick& pick) {
  switch (type) {
    case DataType::f16:
      return pick_any<F16>(pick);
    case DataType::bf16:
      return pick_any<Bf16>(pick);
    case DataType::f8e4m3:
      return pick_any<F8e4m3>(pick);
    case DataType::f8e5m2:
      return pick_any<F8e5m2>(pick);
    default:
      return nullptr;
  }
}

}  // namespace nearlight::algorithm::cuda
