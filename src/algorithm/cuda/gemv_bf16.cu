#include "algorithm/cuda/gemv_kernels.cuh"

namespace nearlight::algorithm::cuda {

GemvKernel pick_gemv_bf16(const GemvPick& pick) { return pick_gemv<Bf16>(pick); }

}  // namespace nearlight::algorithm::cuda
