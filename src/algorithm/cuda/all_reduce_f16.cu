#include "algorithm/cuda/all_reduce_kernels.cuh"

namespace nearlight::algorithm::cuda {

Kernel pick_f16(const Pick& pick) { return pick_variant<F16, ReduceOp::sum>(pick); }

}  // namespace nearlight::algorithm::cuda
