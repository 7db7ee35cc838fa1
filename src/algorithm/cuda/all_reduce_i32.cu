#include "algorithm/cuda/all_reduce_kernels.cuh"

namespace nearlight::algorithm::cuda {

Kernel pick_i32(const Pick& pick) {
  return pick.op == ReduceOp::sum ? pick_variant<std::int32_t, ReduceOp::sum>(pick)
                                  : pick_variant<std::int32_t, ReduceOp::max>(pick);
}

}  // namespace nearlight::algorithm::cuda
