#include "tests/gpu/cache_hint.hpp"

#include <nearlight/detail/exec/cuda_space.cuh>

namespace nearlight::test {

namespace {

__global__ void keep_policy(std::uint64_t* words) {
  words[0] = exec::CudaSpace::kKeep;
  asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(words[1]));
}

}  // namespace

cudaError_t read_keep_policy(std::uint64_t* words) {
  keep_policy<<<1, 1>>>(words);
  return cudaGetLastError();
}

}  // namespace nearlight::test
