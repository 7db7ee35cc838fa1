#include "algorithm/cuda/all_reduce_kernels.cuh"

namespace nearlight::algorithm::cuda {

Kernel pick_bf16(const Pick& pick) { return pick_variant<Bf16>(pick); }

}  // namespace nearlight::algorithm::cuda
