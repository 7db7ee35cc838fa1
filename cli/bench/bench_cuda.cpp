// What `nearlight bench` does with its options on GPUs; compiled without CUDA too.
#include <algorithm>
#include <cstdio>
#include <utility>

#include "cli/bench/finish.hpp"
#include "cli/bench/run_cuda.hpp"
#include "cli/bench/run_host.hpp"
#include "cli/exit_code.hpp"
#include "cli/peers/process_launch.hpp"

namespace nearlight::bench {

Result<std::vector<int>> choose_devices(const cli::GpuLook& look, Backend backend, std::optional<int> gpus,
                                        std::optional<int> per_gpu, std::optional<int> ranks) {
  const int together = std::min(look.together, kMaxRanks);
  int use = gpus.value_or(together);
  if (use > look.gpus) return failure(Code::unsupported, "-g %d: this machine has %d GPUs", use, look.gpus);
  if (use > look.together) {
    return failure(Code::unsupported, "-g %d: only the first %d GPUs reach each other's memory", use,
                   look.together);
  }
  int total = ranks.value_or(use * per_gpu.value_or(use == 1 && !gpus ? 2 : 1));
  if (ranks) use = std::min(use, total);
  if (total > kMaxRanks) return failure(Code::invalid_argument, "%d ranks: at most %d", total, kMaxRanks);
  if (backend == Backend::nccl && total > use) {
    return failure(Code::unsupported, "--backend nccl: %d ranks on %d GPUs, but NCCL takes one rank per GPU",
                   total, use);
  }
  std::vector<int> devices;
  for (int rank = 0; rank < total; ++rank) devices.push_back(rank % use);
  return devices;
}

bool one_rank_per_gpu(const std::vector<int>& devices) {
  std::vector<int> sorted = devices;
  std::sort(sorted.begin(), sorted.end());
  return std::adjacent_find(sorted.begin(), sorted.end()) == sorted.end();
}

namespace {

// Which sizes the peers can run.
Status check_sizes(const BenchOptions& options, const CudaJob& job) {
  if (!has_peer(options, "torch_symm_mem")) return {};
  const std::size_t step = 16 * job.devices.size();
  for (const Case& what : job.cases) {
    if (what.bytes() % step == 0) continue;
    return failure(
        Code::invalid_argument,
        "--against torch_symm_mem: a message of %zu bytes; its two-shot takes multiples of %zu here "
        "(-b, -e, -f)",
        what.bytes(), step);
  }
  return {};
}

}  // namespace

Result<CudaJob> cuda_job(const BenchOptions& options, std::vector<int> devices, bool attach) {
  CudaJob job;
  NL_TRY_ASSIGN(job.cases, cases_of(options));
  job.devices = std::move(devices);
  NL_TRY(check_sizes(options, job));
  job.attach = attach;
  job.peers = options.against;
  job.plan = plan_of(options, attach ? Backend::nccl : Backend::cuda);
  job.comm.timeout = std::chrono::milliseconds(options.timeout_ms);
  job.comm = with_forced(job.comm, options);
  job.paired = options.paired;
  job.fused = options.fused;
  job.call.spread = options.spread;
  job.gemv = options.gemv;
  job.tokens = options.tokens == 0 ? 1 : options.tokens;
  job.forced = forced_of(options);
  job.call.grid = options.grid.value_or(0);
  job.call.threads = options.threads.value_or(0);
  job.scratch = options.scratch;
  job.sm = options.sm;
  job.offsets = options.offsets;
  job.jobs = options.jobs;
  return job;
}

int bench_cuda(const BenchOptions& options, const cli::GpuLook& look) {
  std::optional<int> ranks = options.ranks;
  if (!ranks && !options.gpus && !options.threads_per_gpu) ranks = options.tp;
  auto devices = choose_devices(look, options.backend, options.gpus, options.threads_per_gpu, ranks);
  if (!devices.ok()) return report_failure(devices.status());
  const bool one_each = one_rank_per_gpu(*devices);
  if (has_peer(options, "nccl") || has_peer(options, "nccl_sym")) {
    if (!look.nccl())
      return report_failure(
          failure(Code::unsupported, "--against: NCCL is not there: %s", look.nccl_problem));
  }
  if (has_peer(options, "nvshmem") && !look.nvshmem()) {
    return report_failure(failure(Code::unsupported, "--against nvshmem: %s", look.nvshmem_problem));
  }
  if (!options.against.empty() && !one_each) {
    return report_failure(failure(Code::unsupported,
                                  "--against: %zu ranks share GPUs, but its peers take one rank per GPU",
                                  devices->size()));
  }
  if (options.backend == Backend::nccl && !look.nccl()) {
    return report_failure(failure(Code::unsupported, "--backend nccl: %s", look.nccl_problem));
  }
  const bool processes = peers::needs_processes(options);
  if (options.fused != 0 && processes)
    return report_failure(failure(Code::unsupported, "--fused: against nccl and nccl_sym alone"));
  if (options.gemv != 0 && processes)
    return report_failure(failure(Code::unsupported, "--gemv: against nccl and nccl_sym alone"));
  // The best is NCCL's memory where it is there: what a job that uses NCCL already gets. Not beside peers of
  // other makes: they come with an NCCL of their own.
  const bool attach = options.backend == Backend::nccl || (options.backend == Backend::best && !processes &&
                                                           look.windows() && one_each && devices->size() > 1);
  auto job = cuda_job(options, *devices, attach);
  if (!job.ok()) return report_failure(job.status());
  if (processes) return peers::bench_in_processes(options, *devices, attach);
  job->progress = progress_line();
  auto result = run_cuda(*job);
  clear_progress_line();
  if (!result.ok()) return report_failure(result.status());
  std::fputs(heading(options, job->plan, result->setting).c_str(), stdout);
  return finish(options, job->plan, result->setting, result->measured);
}

}  // namespace nearlight::bench
