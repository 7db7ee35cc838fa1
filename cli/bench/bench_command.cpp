#include "cli/bench/bench_command.hpp"

#include <cstdio>

#include "cli/bench/run_cuda.hpp"
#include "cli/bench/run_host.hpp"
#include "cli/compare.hpp"
#include "cli/exit_code.hpp"
#include "cli/gpu_look.hpp"
#include "cli/peers/mpi_launch.hpp"

namespace nearlight::bench {

int bench_command(const BenchOptions& options) {
  const auto unfit = [](const char* what, const char* why) {
    std::fprintf(stderr, "nearlight: %s: %s\n", what, why);
    return cli::kExitUnfit;
  };
  // A file that cannot be compared with is said before minutes are spent on measuring.
  if (!options.compare.empty()) {
    if (const auto old_file = cli::read_comparable(options.compare); !old_file.ok()) {
      return report_failure(old_file.status().with_context("--compare"));
    }
  }
  Backend backend = options.backend;
  if (backend == Backend::best && has_peer(options, "openmpi")) backend = Backend::host;
  if (backend == Backend::host) {
    return has_peer(options, "openmpi") ? peers::bench_under_mpirun(options) : bench_host(options);
  }

  const cli::GpuLook look = cli::look_at_gpus();
  if (look.gpus == 0) {
    if (backend != Backend::best) return unfit("--backend needs a GPU", look.problem);
    if (!options.against.empty()) return unfit("--against: its peers need a GPU", look.problem);
    if (options.mode && *options.mode != cli::Mode::eager)
      return unfit("--mode: graph and kernel need a GPU", look.problem);
    if (options.fused != 0) return unfit("--fused needs a GPU", look.problem);
    if (options.gemv != 0) return unfit("--gemv needs a GPU", look.problem);
    if (options.grid || options.threads) return unfit("--grid and --threads need a GPU", look.problem);
    if (forced_of(options).size() > 1)
      return unfit("--algorithm, --protocol: several of them need a GPU", look.problem);
    std::fprintf(stderr, "nearlight: no GPU (%s), so between CPU processes\n", look.problem);
    return bench_host(options);
  }
  return bench_cuda(options, look);
}

}  // namespace nearlight::bench
