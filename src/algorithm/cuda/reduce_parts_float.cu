#include "algorithm/cuda/parts_kernels.cuh"

namespace nearlight::algorithm::cuda {

PartsKernel pick_reduced_float(DataType type, Protocol protocol, int nranks) {
  switch (type) {
    case DataType::f32:
      return pick_reduced<float>(protocol, nranks);
    case DataType::f64:
      return pick_reduced<double>(protocol, nranks);
    default:
      return nullptr;
  }
}

}  // namespace nearlight::algorithm::cuda
