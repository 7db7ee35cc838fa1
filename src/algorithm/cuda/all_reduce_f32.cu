#include "algorithm/cuda/all_reduce_kernels.cuh"

namespace nearlight::algorithm::cuda {

Kernel pick_f32(const Pick& pick) { return pick_variant<float>(pick); }

}  // namespace nearlight::algorithm::cuda
