#include "algorithm/cuda/gemv_kernels.cuh"

namespace nearlight::algorithm::cuda {

GemvKernel pick_gemv_f16(const GemvPick& pick) { return pick_gemv<F16>(pick); }

}  // namespace nearlight::algorithm::cuda
