#include "cli/bench/without_limits.hpp"

#include "algorithm/cuda/all_reduce_kernels.cuh"

namespace nearlight::algorithm::cuda {

Kernel pick_loop_without_limits(DataType type, const Pick& pick) {
  if (pick.op != ReduceOp::sum) return nullptr;
  if (type == DataType::f32) return pick_ranks<float, ReduceOp::sum, Variant::loop_without_limits>(pick);
  if (type == DataType::bf16) return pick_ranks<Bf16, ReduceOp::sum, Variant::loop_without_limits>(pick);
  return nullptr;
}

}  // namespace nearlight::algorithm::cuda
