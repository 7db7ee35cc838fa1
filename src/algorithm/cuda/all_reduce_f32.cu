#include "algorithm/cuda/all_reduce_kernels.cuh"

namespace nearlight::algorithm::cuda {

Kernel pick_f32(const Pick& pick) {
  return pick.op == ReduceOp::sum ? pick_variant<float, ReduceOp::sum>(pick)
                                  : pick_variant<float, ReduceOp::max>(pick);
}

}  // namespace nearlight::algorithm::cuda
