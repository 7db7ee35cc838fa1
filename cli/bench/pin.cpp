#include "cli/bench/pin.hpp"

#include <sched.h>

#include <cerrno>

namespace nearlight::bench {

int usable_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

Status pin_rank(int rank, int nranks) {
  cpu_set_t usable;
  CPU_ZERO(&usable);
  if (sched_getaffinity(0, sizeof usable, &usable) != 0) return system_failure("sched_getaffinity", errno);
  if (CPU_COUNT(&usable) < nranks) return {};
  int left = rank;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &usable) || left-- > 0) continue;
    cpu_set_t own;
    CPU_ZERO(&own);
    CPU_SET(cpu, &own);
    if (sched_setaffinity(0, sizeof own, &own) != 0) return system_failure("sched_setaffinity", errno);
    return {};
  }
  return failure(Code::internal_error, "no processor for rank %d", rank);
}

}  // namespace nearlight::bench
