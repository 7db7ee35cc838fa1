#include "algorithm/cuda/all_reduce_kernels.cuh"

namespace nearlight::algorithm::cuda {

Kernel pick_i32(const Pick& pick) { return pick_variant<std::int32_t>(pick); }

}  // namespace nearlight::algorithm::cuda
