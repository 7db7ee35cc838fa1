#include "algorithm/cuda/fused_kernels.cuh"

namespace nearlight::algorithm::cuda {

FusedKernel pick_fused_bf16(const FusedPick& pick) { return pick_fused<Bf16>(pick); }

}  // namespace nearlight::algorithm::cuda
