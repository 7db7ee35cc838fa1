#include <cuda_runtime.h>

#include <nearlight/detail/exec/cuda_space.cuh>
#include "cli/bench/hold.hpp"
#include "probe/cuda_call.hpp"

namespace nearlight::bench {

namespace {

using exec::CudaSpace;

__global__ void hold(const std::uint32_t* flag, std::uint32_t value, std::uint64_t limit_ns) {
  const std::uint64_t begin_ns = CudaSpace::now_ns();
  // Relaxed: nothing is read that the host wrote before it.
  while (CudaSpace::load<exec::Order::relaxed, exec::Scope::system>(*flag) < value) {
    if (CudaSpace::now_ns() - begin_ns > limit_ns) return;
  }
}

}  // namespace

Status load_hold_kernel() {
  cudaFuncAttributes attributes{};
  NL_PROBE_CUDA(cudaFuncGetAttributes(&attributes, hold));
  return {};
}

Status enqueue_hold(const std::uint32_t* flag, std::uint32_t value, std::uint64_t limit_ns,
                    runtime::Stream stream) {
  hold<<<1, 1, 0, static_cast<cudaStream_t>(stream)>>>(flag, value, limit_ns);
  NL_PROBE_CUDA(cudaGetLastError());
  return {};
}

}  // namespace nearlight::bench
