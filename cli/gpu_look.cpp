#include "cli/gpu_look.hpp"

#include <sys/mman.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "bootstrap/fork_group.hpp"
#include "cli/peers/nccl_look.hpp"
#include "cli/peers/nvshmem_api.hpp"
#include "probe/gpu_facts.hpp"

namespace nearlight::cli {

namespace {

void set_text(char (&to)[256], const char* text) { std::snprintf(to, sizeof to, "%s", text); }

int look(GpuLook& look) {
  const probe::GpuFacts facts = probe::gpu_facts();
  look.gpus = static_cast<int>(facts.devices.size());
  look.together = look.gpus > 0 ? 1 : 0;
  for (bool all = look.gpus > 0; all && look.together < look.gpus;) {
    for (int other = 0; other < look.together; ++other) {
      all = all && facts.between(other, look.together) != probe::Link::none;
    }
    if (all) ++look.together;
  }
  set_text(look.problem, facts.problem.c_str());
  const peers::NcclLook nccl = peers::look_at_nccl();
  set_text(look.nccl_problem, nccl.problem.c_str());
  set_text(look.window_problem, nccl.window_problem.c_str());
  set_text(look.nvshmem_problem, peers::load_nvshmem().status().text().c_str());
  return 0;
}

}  // namespace

GpuLook look_at_gpus() {
  GpuLook result;
#if NEARLIGHT_HAS_CUDA
  void* shared = mmap(nullptr, sizeof(GpuLook), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) {
    set_text(result.problem, system_failure("mmap", errno).text().c_str());
    return result;
  }
  auto* const seen = new (shared) GpuLook;
  auto outcome = bootstrap::run_forked(1, [seen](Exchange&) { return look(*seen); });
  if (outcome.ok() && outcome->ok()) {
    result = *seen;
  } else {
    set_text(result.problem, (outcome.ok() ? outcome->to_string() : outcome.status().to_string()).c_str());
  }
  munmap(shared, sizeof(GpuLook));
#else
  look(result);
#endif
  return result;
}

}  // namespace nearlight::cli
