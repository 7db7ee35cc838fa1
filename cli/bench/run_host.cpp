#include "cli/bench/run_host.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>

#include "cli/bench/finish.hpp"
#include "cli/bench/limits.hpp"
#include "cli/bench/nearlight_contender.hpp"
#include "cli/bench/pin.hpp"
#include "cli/exit_code.hpp"
#include "cli/machine.hpp"
#include "cli/sol_heaps.hpp"
#include "probe/gpu_facts.hpp"
#include "runtime/create.hpp"

namespace nearlight::bench {

namespace {

// A benchmark that runs longer was told to: this only keeps forgotten ones from running for ever.
constexpr std::chrono::hours kForkLimit{12};

Status measure(Exchange& exchange, const HostJob& job, Meeting& meeting, std::size_t scratch,
               const Progress& progress, HostResult& result) {
  std::vector<std::unique_ptr<Contender>> contenders;
  const runtime::Options options =
      with_pair(scratch == 0 ? job.comm : with_scratch(job.comm, scratch), job.paired);
  NL_TRY_ASSIGN(auto communicator, runtime::create_host(exchange, options));
  result.memory = communicator->memory();
  if (job.paired != Paired::none) {
    contenders = make_pair_of(job.paired, std::move(communicator), job.call, {}, timeout_of(job.comm));
  } else {
    contenders.push_back(make_nearlight_contender(std::move(communicator), job.call));
  }
  if (job.make_peers) {
    NL_TRY_ASSIGN(auto peers, job.make_peers(exchange));
    for (auto& peer : peers) contenders.push_back(std::move(peer));
  }
  std::vector<Contender*> views;
  for (const auto& contender : contenders) {
    views.push_back(contender.get());
    if (const std::string text = contender->settings(); !text.empty())
      result.settings[contender->impl()] = text;
  }
  std::unique_ptr<Contender> second;
  std::vector<Contender*> beside;
  if (job.jobs > 1) {
    NL_TRY_ASSIGN(auto another, runtime::create_host(exchange, options));
    second = make_nearlight_contender(std::move(another), job.call);
    beside.push_back(second.get());
  }

  const auto place = make_host_place();
  Engine engine(meeting, *place, views, beside);
  std::size_t largest = 0;
  for (const Case& what : job.cases) largest = std::max(largest, what.bytes());
  NL_TRY(engine.reserve(largest));
  NL_TRY_ASSIGN(auto measured, engine.measure(job.cases, job.plan, progress));
  for (Measured& entry : measured) {
    entry.scratch = scratch;
    result.measured.push_back(std::move(entry));
  }
  // Nobody takes its communicator down while another still measures.
  return meeting.barrier();
}

}  // namespace

Result<HostResult> run_host_rank(Exchange& exchange, const HostJob& job) {
  // The threads of two jobs must not share a processor while others are free.
  if (job.jobs == 1) NL_TRY(pin_rank(exchange.rank(), exchange.nranks()));
  NL_TRY_ASSIGN(const auto meeting, Meeting::create(exchange, samples_per_turn(job.plan),
                                                    limits_of(timeout_of(job.comm)).meeting));
  HostResult result;
  const std::vector<std::size_t> turns = job.scratch.empty() ? std::vector<std::size_t>{0} : job.scratch;
  for (std::size_t turn = 0; turn < turns.size(); ++turn) {
    NL_TRY(measure(exchange, job, *meeting, turns[turn], part_of(job.progress, turn, turns.size()), result));
  }
  set_costs(job.paired, result.measured);
  return result;
}

Result<Setting> host_setting(int ranks) {
  auto report = cli::measure_sol_on_cpu();
  NL_TRY(report.status().with_context("probe of this machine's limits"));
  Setting setting;
  setting.floors = cli::floors_of(*report);
  setting.backend = "host";
  setting.memory = "shm";
  setting.ranks = ranks;
  setting.places.assign(static_cast<std::size_t>(ranks), cli::cpu_name());
  if (ranks > usable_cpus()) setting.places[0] += " (more ranks than processors)";
  setting.machine = cli::describe_machine(probe::GpuFacts{}, {}, "");
  return setting;
}

int verdict(const std::vector<Measured>& measured) {
  int code = cli::kExitOk;
  for (const Measured& entry : measured) {
    if (entry.wrong == 0) continue;
    code = cli::kExitWrong;
    if (!entry.first_wrong.empty()) {
      std::fprintf(stderr, "nearlight: wrong result of %s, %zu bytes%s, %s\n", entry.impl.c_str(),
                   entry.what.bytes(), entry.in_place ? " in place" : "", entry.first_wrong.c_str());
    }
  }
  return code;
}

Result<int> bench_host_rank(Exchange& exchange, const BenchOptions& options, Setting setting,
                            const MakePeers& make_peers) {
  HostJob job;
  NL_TRY_ASSIGN(job.cases, cases_of(options));
  job.plan = plan_of(options, Backend::host);
  job.comm.timeout = std::chrono::milliseconds(options.timeout_ms);
  job.comm = with_forced(job.comm, options);
  if (!options.algorithms.empty()) job.call.algorithm = options.algorithms[0];
  if (!options.protocols.empty()) job.call.protocol = options.protocols[0];
  job.paired = options.paired;
  job.scratch = options.scratch;
  job.jobs = options.jobs;
  job.make_peers = make_peers;
  const bool speaks = exchange.rank() == 0;
  if (speaks) {
    std::fputs(heading(options, job.plan, setting).c_str(), stdout);
    std::fflush(stdout);
    job.progress = progress_line();
  }
  auto result = run_host_rank(exchange, job);
  if (speaks) clear_progress_line();
  NL_TRY(result.status());
  setting.peers = result->settings;
  return speaks ? finish(options, job.plan, setting, result->measured) : verdict(result->measured);
}

int bench_host(const BenchOptions& options) {
  const int ranks = ranks_of(options, 2);
  // What is wrong with the workload is said once, not by every rank.
  if (auto cases = cases_of(options); !cases.ok()) return report_failure(cases.status());
  auto setting = host_setting(ranks);
  if (!setting.ok()) return report_failure(setting.status());
  bootstrap::ForkOptions fork_options;
  fork_options.time_limit = kForkLimit;
  std::fflush(stdout);
  auto outcome = bootstrap::run_forked(
      ranks,
      [&](Exchange& exchange) {
        auto code = bench_host_rank(exchange, options, *setting, {});
        return code.ok() ? *code : report_failure(code.status());
      },
      fork_options);
  if (!outcome.ok()) return report_failure(outcome.status());
  return exit_code_of(*outcome);
}

int report_failure(const Status& status) {
  if (status.code() != Code::remote_error)
    std::fprintf(stderr, "nearlight: %s\n", status.to_string().c_str());
  return cli::exit_code_of(status);
}

int exit_code_of(const bootstrap::ForkOutcome& outcome) {
  int code = cli::kExitOk;
  for (const bootstrap::RankExit& exit : outcome.ranks) {
    if (exit.exit_code < 0) {
      std::fprintf(stderr, "nearlight: %s\n", outcome.to_string().c_str());
      return cli::kExitWrong;
    }
    code = std::max(code, exit.exit_code);
  }
  return code;
}

}  // namespace nearlight::bench
