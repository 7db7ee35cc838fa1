#include "cli/tune/tune_command.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <system_error>
#include <utility>

#include <nearlight/build_info.hpp>
#include "bootstrap/fork_group.hpp"
#include "cli/bench/nearlight_contender.hpp"
#include "cli/bench/pin.hpp"
#include "cli/bench/run_cuda.hpp"
#include "cli/bench/run_host.hpp"
#include "cli/exit_code.hpp"
#include "cli/gpu_look.hpp"
#include "cli/text_file.hpp"
#include "cli/tune/crossover.hpp"
#include "probe/gpu_facts.hpp"
#include "route/table_file.hpp"
#include "runtime/create.hpp"
#include "runtime/steering.hpp"

namespace nearlight::tune {

namespace {

using bench::Measured;
using bench::report_failure;
using std::chrono::milliseconds;

constexpr milliseconds kCallTimeout{20'000};
constexpr std::size_t kSamples = 20'000;  // of a size and protocol, if the budget allows it

runtime::CallOptions options_of(const Way& way) {
  runtime::CallOptions options;
  options.algorithm = way.algorithm;
  options.protocol = way.protocol;
  return options;
}
bench::Forced forced_of(const Way& way) { return {way.algorithm, way.protocol}; }
// As the benchmark names a forced contender.
std::string impl_of(const Way& way) {
  return std::string(cli::kOwnImpl) + "_" + algorithm::name_of(way.algorithm) + "_" +
         algorithm::name_of(way.protocol);
}

// What one crossover takes: two forced protocols in turns, at each of the sizes.
struct Job {
  Crossover crossover;
  std::vector<bench::Case> cases;
  bench::Plan plan;
};

std::vector<Job> jobs_of(const route::Table& table, const route::Target& target, int budget_s) {
  std::vector<Job> jobs;
  std::size_t cases = 0;
  for (const Crossover& crossover : crossovers_of(target.gpu, target.nranks)) {
    Job job{crossover, {}, {}};
    const std::uint64_t message = message_of(table.*crossover.number, crossover.counts, target.nranks);
    for (const std::size_t bytes : sizes_around(message)) {
      job.cases.push_back({bytes / size_of(crossover.type), crossover.type, ReduceOp::sum});
    }
    cases += job.cases.size();
    jobs.push_back(std::move(job));
  }
  for (Job& job : jobs) {
    job.plan.mode = target.gpu ? cli::Mode::graph : cli::Mode::eager;
    job.plan.chain = target.gpu ? 100 : 10;
    job.plan.samples = kSamples;
    job.plan.in_place = false;
    job.plan.budget = milliseconds(1000 * budget_s) / static_cast<int>(cases);
  }
  return jobs;
}

// The forced protocols' timings of each size; `below` and `above`: their names in `measured`.
std::vector<Point> points_of(const std::vector<Measured>& measured, const std::string& below,
                             const std::string& above) {
  std::vector<Point> points;
  for (const Measured& entry : measured) {
    if (entry.samples.empty() || (entry.impl != below && entry.impl != above)) continue;
    if (points.empty() || points.back().bytes != entry.what.bytes())
      points.push_back({entry.what.bytes(), {}, {}});
    (entry.impl == below ? points.back().below : points.back().above) = timing_of(entry.samples.values_us());
  }
  return points;
}

void print_points(const Crossover& crossover, const std::vector<Point>& points) {
  const std::string below = name_of(crossover.below), above = name_of(crossover.above);
  std::printf("\n# %s: %s or %s, %s sum\n", crossover.field, below.c_str(), above.c_str(),
              nearlight::name_of(crossover.type));
  std::printf("#   size (B)  %17s us  %17s us     gain    noise  faster\n", below.c_str(), above.c_str());
  for (const Point& point : points) {
    const std::string faster = point.below_wins() ? below : point.above_wins() ? above : "-";
    std::printf("%12zu  %20.3f  %20.3f  %6.1f%%  %6.1f%%  %s\n", point.bytes, point.below.us, point.above.us,
                100 * point.gain(), 100 * point.noise(), faster.c_str());
  }
}

void print_refined(const Crossover& crossover, std::uint64_t before, const Refined& refined) {
  if (refined.moved == 0) {
    std::printf("%s stays %llu: no size next to it gains more than its noise\n", crossover.field,
                static_cast<unsigned long long>(before));
    return;
  }
  std::printf("%s %llu -> %llu: %zu sizes gain %.1f %%, at most %.1f %% (noise at most %.1f %%)%s\n",
              crossover.field, static_cast<unsigned long long>(before),
              static_cast<unsigned long long>(refined.value), refined.moved, 100 * refined.mean_gain,
              100 * refined.most_gain, 100 * refined.most_noise,
              refined.at_the_edge ? "; all sizes on that side: run it again with the new table" : "");
}

// Measures one job; collective where ranks are processes.
using Measure = std::function<Result<std::vector<Measured>>(const Job&)>;
struct Names {
  std::string below, above;
};

// All crossovers, one after the other; who `speaks` prints and writes. The exit status.
Result<int> tune(const TuneOptions& options, const route::Target& target, const route::Table& start,
                 bool speaks, const std::function<Names(const Job&)>& names, const Measure& measure) {
  const auto begin = std::chrono::steady_clock::now();
  if (speaks) {
    std::printf("# tune: %d %s ranks, from the table %s\n", target.nranks, target.gpu ? "GPU" : "CPU",
                route::describe(start, target).c_str());
  }
  route::Table table = start;
  table.origin = route::Origin::file;
  std::size_t changed = 0;
  for (const Job& job : jobs_of(start, target, options.budget_s)) {
    NL_TRY_ASSIGN(const auto measured, measure(job));
    if (const int code = bench::verdict(measured); code != cli::kExitOk) return code;
    if (!speaks) continue;
    const Crossover& crossover = job.crossover;
    const auto points = points_of(measured, names(job).below, names(job).above);
    const std::uint64_t before = start.*crossover.number;
    Refined refined = refine(crossover, before, target.nranks, points);
    for (const route::TableField& field : route::fields_of(target.gpu)) {
      if (field.value == crossover.number)
        refined.value = std::clamp(refined.value, field.lowest, field.highest);
    }
    table.*crossover.number = refined.value;
    changed += refined.value != before;
    print_points(crossover, points);
    print_refined(crossover, before, refined);
    std::fflush(stdout);
  }
  if (!speaks) return cli::kExitOk;
  const std::string made_by =
      std::string("nearlight tune, ") + build_info::version + ", commit " + build_info::commit;
  NL_TRY(cli::write_text_file(options.output, route::table_text(table, target, made_by)));
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  std::printf("\n# %zu numbers changed, %.1f s. In force with NEARLIGHT_ROUTE_TABLE=%s\n", changed, seconds,
              options.output.c_str());
  return cli::kExitOk;
}

// The one in force, from which others are looked for.
Result<route::Table> start_of(const route::Target& target) {
  NL_TRY_ASSIGN(const auto from_file, runtime::read_route_table(target));
  return from_file.value_or(route::shipped_table(target));
}

Result<int> tune_host_rank(Exchange& exchange, const TuneOptions& options, const route::Target& target,
                           const route::Table& start) {
  const bool speaks = exchange.rank() == 0;
  const auto measure = [&](const Job& job) -> Result<std::vector<Measured>> {
    bench::HostJob host;
    host.cases = job.cases;
    host.plan = job.plan;
    host.comm.timeout = kCallTimeout;
    host.call = options_of(job.crossover.below);
    // The other protocol is a peer, on a communicator of its own.
    host.make_peers = [&](Exchange& group) -> Result<std::vector<std::unique_ptr<bench::Contender>>> {
      NL_TRY_ASSIGN(auto communicator, runtime::create_host(group, host.comm));
      std::vector<std::unique_ptr<bench::Contender>> peers;
      peers.push_back(bench::make_nearlight_contender(std::move(communicator),
                                                      options_of(job.crossover.above), {}, true));
      return peers;
    };
    if (speaks) host.progress = bench::progress_line();
    auto result = bench::run_host_rank(exchange, host);
    if (speaks) bench::clear_progress_line();
    NL_TRY(result.status());
    return std::move(result->measured);
  };
  const auto names = [](const Job& job) {
    return Names{std::string(cli::kOwnImpl), impl_of(job.crossover.above)};
  };
  return tune(options, target, start, speaks, names, measure);
}

int tune_host(const TuneOptions& options) {
  const route::Target target{false, "", options.ranks.value_or(2)};
  const auto start = start_of(target);
  if (!start.ok()) return report_failure(start.status());
  if (target.nranks > bench::usable_cpus()) {
    std::fprintf(stderr, "nearlight: %d ranks on %d processors: what is measured is how they take turns\n",
                 target.nranks, bench::usable_cpus());
  }
  bootstrap::ForkOptions fork_options;
  fork_options.time_limit = milliseconds(1000) * (120 + 4 * options.budget_s);
  std::fflush(stdout);
  auto outcome = bootstrap::run_forked(
      target.nranks,
      [&](Exchange& exchange) {
        auto code = tune_host_rank(exchange, options, target, *start);
        std::fflush(stdout);
        return code.ok() ? *code : report_failure(code.status());
      },
      fork_options);
  if (!outcome.ok()) return report_failure(outcome.status());
  return bench::exit_code_of(*outcome);
}

Result<route::Target> target_of(const std::vector<int>& devices) {
  // As the benchmark does before CUDA starts, which the next line lets it.
  if (!bench::one_rank_per_gpu(devices)) setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
  const probe::GpuFacts facts = probe::gpu_facts();
  route::Target target{true, "", static_cast<int>(devices.size())};
  for (const int device : devices) {
    const auto index = static_cast<std::size_t>(device);
    if (index >= facts.devices.size()) return failure(Code::unsupported, "no GPU: %s", facts.problem.c_str());
    const std::string& name = facts.devices[index].name;
    if (!target.gpu_name.empty() && name != target.gpu_name) {
      return failure(Code::unsupported, "the GPUs differ (%s, %s): a table is for one kind",
                     target.gpu_name.c_str(), name.c_str());
    }
    target.gpu_name = name;
  }
  return target;
}

Result<int> tune_cuda(const TuneOptions& options, const cli::GpuLook& look) {
  bench::CudaJob cuda;
  NL_TRY_ASSIGN(cuda.devices, bench::choose_devices(look, options.backend, {}, {}, options.ranks));
  if (cuda.devices.size() < 2) return failure(Code::unsupported, "there is nothing to tune for one rank");
  NL_TRY_ASSIGN(const route::Target target, target_of(cuda.devices));
  NL_TRY_ASSIGN(const route::Table start, start_of(target));
  cuda.attach =
      options.backend == bench::Backend::nccl ||
      (options.backend == bench::Backend::best && bench::one_rank_per_gpu(cuda.devices) && look.windows());
  cuda.comm.timeout = kCallTimeout;
  const auto measure = [&](const Job& job) -> Result<std::vector<Measured>> {
    cuda.cases = job.cases;
    cuda.plan = job.plan;
    cuda.forced = {forced_of(job.crossover.below), forced_of(job.crossover.above)};
    cuda.progress = bench::progress_line();
    auto result = bench::run_cuda(cuda);
    bench::clear_progress_line();
    NL_TRY(result.status());
    return std::move(result->measured);
  };
  const auto names = [](const Job& job) {
    return Names{impl_of(job.crossover.below), impl_of(job.crossover.above)};
  };
  return tune(options, target, start, true, names, measure);
}

}  // namespace

int tune_command(const TuneOptions& options) {
  // Not to be found out when all is measured.
  const auto folder = std::filesystem::path(options.output).parent_path();
  if (std::error_code error; !folder.empty() && !std::filesystem::is_directory(folder, error)) {
    return report_failure(
        failure(Code::invalid_argument, "--output %s: there is no such folder", options.output.c_str()));
  }
  if (options.backend == bench::Backend::host) return tune_host(options);
  const cli::GpuLook look = cli::look_at_gpus();
  if (look.gpus > 0) {
    const auto code = tune_cuda(options, look);
    return code.ok() ? *code : report_failure(code.status());
  }
  if (options.backend != bench::Backend::best) {
    return report_failure(failure(Code::unsupported, "--backend %s needs a GPU: %s",
                                  bench::name_of(options.backend), look.problem));
  }
  std::fprintf(stderr, "nearlight: no GPU (%s), so between CPU processes\n", look.problem);
  return tune_host(options);
}

}  // namespace nearlight::tune
