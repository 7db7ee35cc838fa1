#include "algorithm/cuda/all_reduce_kernels.cuh"

namespace nearlight::algorithm::cuda {

Kernel pick_bf16(const Pick& pick) {
  return pick.op == ReduceOp::sum ? pick_variant<Bf16, ReduceOp::sum>(pick)
                                  : pick_variant<Bf16, ReduceOp::max>(pick);
}

}  // namespace nearlight::algorithm::cuda
