#include "cli/sol_heaps.hpp"

#include "base/deadline.hpp"
#include "cli/heap_pair.hpp"
#include "memory/shm_heap.hpp"

namespace nearlight::cli {

Result<probe::SolReport> measure_sol_on_cpu(int lines) {
  const std::size_t bytes = probe::cpu_probe_bytes(lines);
  NL_TRY_ASSIGN(const HeapPair heaps, make_heap_pair([bytes](Exchange& exchange, Deadline deadline) {
                  return memory::create_shm_heap(exchange, bytes, deadline);
                }));
  probe::CpuProbeTarget target;
  for (int rank = 0; rank < 2; ++rank) target.part[rank] = heaps.of(0).view().part(rank);
  target.bytes = bytes;
  target.lines = lines;
  return probe::measure_cpu(target);
}

}  // namespace nearlight::cli
