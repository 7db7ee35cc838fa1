#include "algorithm/cuda/fused_kernels.cuh"

namespace nearlight::algorithm::cuda {

FusedKernel pick_fused_f16(const FusedPick& pick) { return pick_fused<F16>(pick); }

}  // namespace nearlight::algorithm::cuda
