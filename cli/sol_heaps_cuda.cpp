#include "cli/heap_pair.hpp"
#include "cli/sol_heaps.hpp"
#include "memory/cuda_vmm_heap.hpp"

namespace nearlight::cli {

Result<probe::SolReport> measure_sol_on_gpus(int device_a, int device_b, int lines) {
  const std::size_t bytes = probe::gpu_probe_bytes(lines);
  const int devices[2] = {device_a, device_b};
  NL_TRY_ASSIGN(const HeapPair heaps, make_heap_pair([&](Exchange& exchange, Deadline deadline) {
                  return memory::create_cuda_vmm_heap(exchange, devices[exchange.rank()], bytes, deadline);
                }));
  probe::GpuProbeTarget target;
  for (int rank = 0; rank < 2; ++rank) {
    const memory::HeapView& view = heaps.of(rank).view();
    target.ends[rank] = {devices[rank], view.base, view.stride, rank};
  }
  target.bytes = bytes;
  target.lines = lines;
  return probe::measure_gpu(target);
}

}  // namespace nearlight::cli
