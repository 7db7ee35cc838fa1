#include "algorithm/cuda/parts_kernels.cuh"

namespace nearlight::algorithm::cuda {

PartsKernel pick_reduced_small_float(DataType type, Protocol protocol, int nranks) {
  switch (type) {
    case DataType::f16:
      return pick_reduced<F16>(protocol, nranks);
    case DataType::bf16:
      return pick_reduced<Bf16>(protocol, nranks);
    case DataType::f8e4m3:
      return pick_reduced<F8e4m3>(protocol, nranks);
    case DataType::f8e5m2:
      return pick_reduced<F8e5m2>(protocol, nranks);
    default:
      return nullptr;
  }
}

}  // namespace nearlight::algorithm::cuda
