#include "algorithm/cuda/all_reduce_any.cuh"

namespace nearlight::algorithm::cuda {

Kernel pick_any_float(DataType type, const Pick& pick) {
  switch (type) {
    case DataType::f32:
      return pick_any<float>(pick);
    case DataType::f64:
      return pick_any<double>(pick);
    default:
      return nullptr;
  }
}

}  // namespace nearlight::algorithm::cuda
