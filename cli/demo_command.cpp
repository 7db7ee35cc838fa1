#include "cli/demo_command.hpp"

#include <algorithm>
#include <cstdio>

#include "bootstrap/fork_group.hpp"
#include "cli/bench/run_cuda.hpp"
#include "cli/bench/run_host.hpp"
#include "cli/demo_table.hpp"
#include "cli/exit_code.hpp"
#include "cli/gpu_look.hpp"
#include "cli/workload.hpp"

namespace nearlight::cli {

namespace {

constexpr int kHostRanks = 4;
constexpr std::chrono::milliseconds kTimeForAllSizes{10'000};
constexpr std::chrono::milliseconds kTimeLimit{120'000};  // of the whole demo

using bench::report_failure;

std::vector<bench::Case> cases_of(const Workload& workload) {
  std::vector<bench::Case> cases;
  for (const WorkloadSize& size : sizes_of(workload))
    cases.push_back({size.count, workload.dtype, ReduceOp::sum});
  return cases;
}

bench::Plan plan_of(Mode mode, std::size_t cases) {
  bench::Plan plan;
  plan.mode = mode;
  plan.chain = mode == Mode::graph ? 20 : 1;
  plan.samples = trace::kSamplesForP999;
  plan.in_place = false;
  plan.budget = kTimeForAllSizes / static_cast<int>(std::max<std::size_t>(cases, 1));
  return plan;
}

int show(const DemoOptions& options, const Workload& workload, const std::string& where,
         const bench::Setting& setting, Mode mode, const std::vector<bench::Measured>& measured) {
  std::fputs(demo_table(workload, where, setting, mode, measured).c_str(), stdout);
  std::fflush(stdout);
  const Status kept = bench::keep(
      options.json, bench::file_of(options.arguments, setting, bench::rows_of(measured, setting, mode)));
  return kept.ok() ? bench::verdict(measured) : report_failure(kept);
}

int host_rank(Exchange& exchange, const DemoOptions& options, const Workload& workload,
              bench::Setting setting) {
  const bool speaks = exchange.rank() == 0;
  bench::HostJob job;
  job.cases = cases_of(workload);
  job.plan = plan_of(Mode::eager, job.cases.size());
  job.comm.timeout = std::chrono::milliseconds(20'000);
  if (speaks) job.progress = bench::progress_line();
  auto result = bench::run_host_rank(exchange, job);
  if (speaks) bench::clear_progress_line();
  if (!result.ok()) return report_failure(result.status());
  if (!speaks) return bench::verdict(result->measured);
  setting.memory = result->memory;
  const std::string where =
      std::to_string(setting.ranks) + " CPU processes over shared memory, " + setting.places[0];
  return show(options, workload, where, setting, Mode::eager, result->measured);
}

int demo_host(const DemoOptions& options, const Workload& workload) {
  const int ranks = options.ranks.value_or(kHostRanks);
  auto setting = bench::host_setting(ranks);
  if (!setting.ok()) return report_failure(setting.status());
  bootstrap::ForkOptions fork_options;
  fork_options.time_limit = kTimeLimit;
  std::fflush(stdout);
  auto outcome = bootstrap::run_forked(
      ranks, [&](Exchange& exchange) { return host_rank(exchange, options, workload, *setting); },
      fork_options);
  if (!outcome.ok()) return report_failure(outcome.status());
  return bench::exit_code_of(*outcome);
}

int demo_cuda(const DemoOptions& options, const Workload& workload, const GpuLook& look) {
  bench::CudaJob job;
  job.cases = cases_of(workload);
  job.plan = plan_of(Mode::graph, job.cases.size());
  job.comm.timeout = std::chrono::milliseconds(20'000);
  auto chosen = bench::choose_devices(look, options.backend, {}, {}, options.ranks);
  if (!chosen.ok()) return report_failure(chosen.status());
  job.devices = *chosen;
  // Where NCCL is there, nearlight attaches to it and is measured beside it.
  const bool one_each = bench::one_rank_per_gpu(job.devices);
  job.attach = options.backend == bench::Backend::nccl ||
               (options.backend == bench::Backend::best && one_each && look.windows());
  if (one_each && look.nccl() && job.devices.size() > 1) job.peers = {"nccl"};
  job.progress = bench::progress_line();
  auto result = bench::run_cuda(job);
  bench::clear_progress_line();
  if (!result.ok()) return report_failure(result.status());
  const std::string where =
      std::to_string(result->setting.ranks) + " ranks on " + std::to_string(result->setting.machine.gpus) +
      " x " + result->setting.machine.gpu +
      (result->setting.machine.gpus > 1 ? " (" + result->setting.machine.link + ")" : "");
  return show(options, workload, where, result->setting, Mode::graph, result->measured);
}

}  // namespace

int demo_command(const DemoOptions& options) {
  auto workload = load_workload(options.workload);
  if (!workload.ok()) return report_failure(workload.status().with_context("--workload"));
  if (options.backend == bench::Backend::host) return demo_host(options, *workload);
  const GpuLook look = look_at_gpus();
  if (look.gpus == 0 && options.backend != bench::Backend::best) {
    return report_failure(failure(Code::unsupported, "--backend %s needs a GPU: %s",
                                  bench::name_of(options.backend), look.problem));
  }
  if (look.gpus > 0) return demo_cuda(options, *workload, look);
  std::fprintf(stderr, "nearlight: no GPU (%s), so between CPU processes\n", look.problem);
  return demo_host(options, *workload);
}

}  // namespace nearlight::cli
