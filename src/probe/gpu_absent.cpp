// The GPU side of a build without CUDA.
#include "probe/gpu_facts.hpp"
#include "probe/sol.hpp"

namespace nearlight::probe {

GpuFacts gpu_facts() {
  GpuFacts facts;
  facts.problem = "built without CUDA";
  return facts;
}

std::size_t gpu_probe_bytes(int) { return 0; }

Result<SolReport> measure_gpu(const GpuProbeTarget&) {
  return failure(Code::unsupported, "built without CUDA");
}

}  // namespace nearlight::probe
