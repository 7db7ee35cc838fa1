#include "cli/info_facts.hpp"

#include <unistd.h>

#include <algorithm>

#include <nearlight/build_info.hpp>
#include "base/types.hpp"
#include "base/variables.hpp"
#include "bootstrap/job.hpp"
#include "cli/bench/options.hpp"
#include "cli/line_look.hpp"
#include "cli/machine.hpp"
#include "cli/peers/mpi_launch.hpp"
#include "cli/peers/nccl_look.hpp"
#include "route/route.hpp"
#include "runtime/checks.hpp"
#include "runtime/steering.hpp"

namespace nearlight::cli {

namespace {

constexpr std::size_t kRouteBytes[] = {
    8, 128, 1024, 4096, 16 * 1024, 64 * 1024, 256 * 1024, 1024 * 1024, 8 * 1024 * 1024, 64 * 1024 * 1024};
// As the communicators choose them for two ranks, a GPU each.
constexpr std::uint32_t kHostSlots = 1024, kHostCells = 4096, kHostPackets = 1024;
constexpr std::uint32_t kGpuSlots = 2048, kGpuCells = 4096;
constexpr int kUsualSms = 132;

std::vector<RouteFact> routes_of(const route::Facts& like) {
  std::vector<RouteFact> facts;
  for (const std::size_t bytes : kRouteBytes) {
    route::Facts ask = like;
    ask.count = bytes / size_of(ask.type);
    const route::Route route = route::all_reduce(ask);
    facts.push_back({bytes, algorithm::name_of(route.algorithm), route::protocol_name(route), route.reason,
                     route.grid, route.run_threads});
  }
  return facts;
}

// What the environment makes of the shipped table and of the choice, for two ranks.
struct Choosing {
  route::Table table;
  route::Forced forced;
  std::uint32_t max_ctas = 0;
  TableFact fact;
};
Choosing choosing_of(const route::Target& target) {
  Choosing choosing;
  choosing.table = route::shipped_table(target);
  const auto steering = runtime::read_steering(target);
  if (!steering.ok()) {
    choosing.fact.problem = steering.status().text();
  } else {
    choosing.table = steering->table.value_or(choosing.table);
    choosing.forced = steering->forced;
  }
  if (const auto max_ctas = runtime::effective_max_ctas({}); max_ctas.ok()) {
    choosing.max_ctas = *max_ctas;
  } else if (choosing.fact.problem.empty()) {
    choosing.fact.problem = max_ctas.status().text();
  }
  choosing.fact.source = route::describe(choosing.table, target);
  if (steering.ok() && steering->left_aside)
    choosing.fact.source += "; NEARLIGHT_ROUTE_TABLE is for another number of ranks";
  for (const route::TableField& field : route::fields_of(target.gpu)) {
    choosing.fact.numbers.emplace_back(field.name, choosing.table.*field.value);
  }
  return choosing;
}

// GPU 0's, else a usual number.
int sms_of(const probe::GpuFacts& gpus) {
  return gpus.devices.empty() ? kUsualSms : gpus.devices[0].sm_count;
}

std::vector<BackendFact> backends_of(const InfoFacts& facts, const std::string& window_problem) {
  std::vector<BackendFact> backends;
  backends.push_back({"host", true, "threads and processes of one machine, shared memory"});
  const bool built = !facts.cuda_compiler.empty();
  const std::size_t gpus = facts.gpus.devices.size();
  const std::string no_gpu = built ? facts.gpus.problem : "built without CUDA";
  const bool pair = facts.gpus.first_pair().first >= 0;
  backends.push_back({"cuda_vmm", gpus > 0,
                      gpus == 0 ? no_gpu
                      : pair    ? "GPUs that reach each other, one process or several, with or without a "
                                  "communicator of NCCL; several ranks on a GPU"
                                : "several ranks on one GPU; no two GPUs here reach each other"});
  BackendFact nccl{"nccl_window", false, ""};
  if (gpus == 0) {
    nccl.why = no_gpu;
  } else if (!window_problem.empty()) {
    nccl.why = window_problem;
  } else if (!pair) {
    nccl.why = "needs two GPUs that reach each other";
  } else {
    nccl.available = true;
    nccl.why = "windows of communicators of NCCL " + facts.nccl_version;
  }
  backends.push_back(nccl);
  return backends;
}

// What a group on these GPUs would be attached to. Without a GPU, that of the one that was measured.
route::AttachedNccl attached_of(const InfoFacts& facts, const peers::NcclLook& nccl) {
  if (!nccl.problem.empty()) return {};
  int capability = 90;
  if (!facts.gpus.devices.empty()) {
    const auto& device = facts.gpus.devices[0];
    capability = device.compute_major * 10 + device.compute_minor;
  }
  return {nccl.version_code, capability};
}

void look_at_job(InfoFacts& facts) {
  const auto job = bootstrap::find_job();
  if (!job.ok()) {
    facts.place_problem = job.status().text();
    return;
  }
  facts.place = "rank " + std::to_string(job->rank) + " of " + std::to_string(job->nranks) + ", key \"" +
                job->key + "\"; " + job->source;
}

}  // namespace

InfoFacts gather_info() {
  InfoFacts facts;
  facts.version = build_info::version;
  facts.commit = build_info::commit;
  facts.build_type = build_info::build_type;
  facts.compiler = build_info::compiler;
  facts.cuda_compiler = build_info::cuda_compiler;
  facts.cpu = cpu_name();
  look_at_job(facts);
  facts.gpus = probe::gpu_facts();
  facts.lines = look_at_lines(facts.gpus);
  const peers::NcclLook nccl = peers::look_at_nccl();
  facts.nccl_headers = nccl.headers;
  facts.nccl_path = nccl.path;
  facts.nccl_version = nccl.version;
  facts.nccl_faults = nccl.faults;
  facts.nccl_problem = nccl.problem;
  facts.backends = backends_of(facts, nccl.window_problem);

  const Choosing on_host = choosing_of({false, "", 2});
  // Without a GPU, what the GPU would be that was measured.
  const std::string gpu = facts.gpus.devices.empty() ? route::kMeasuredGpu : facts.gpus.devices[0].name;
  const Choosing on_gpu = choosing_of({true, gpu, 2});
  facts.host_table = on_host.fact;
  facts.gpu_table = on_gpu.fact;
  facts.host_routes = routes_of({.gpu = false,
                                 .nranks = 2,
                                 .regions = 1,
                                 .slots = kHostSlots,
                                 .cells = kHostCells,
                                 .packets = kHostPackets,
                                 .table = &on_host.table,
                                 .forced = on_host.forced});
  std::uint32_t regions = route::regions_of(sms_of(facts.gpus), 1);
  if (on_gpu.max_ctas != 0) regions = std::min(regions, on_gpu.max_ctas);
  const route::AttachedNccl attached = attached_of(facts, nccl);
  facts.gpu_routes = routes_of({.gpu = true,
                                .nranks = 2,
                                .regions = regions,
                                .slots = kGpuSlots,
                                .cells = kGpuCells,
                                .packets = route::packets_for(on_gpu.table, 2, regions),
                                .table = &on_gpu.table,
                                .forced = on_gpu.forced,
                                .max_ctas = on_gpu.max_ctas,
                                .nccl = attached});

  std::string types, ops;
  for (const DataType type : kDataTypes) types += (types.empty() ? "" : ", ") + std::string(name_of(type));
  for (const ReduceOp op : kReduceOps) ops += (ops.empty() ? "" : ", ") + std::string(name_of(op));
  facts.limits = {{"ranks", "1 to " + std::to_string(bench::kMaxRanks)},
                  {"collectives", bench::collective_names() + ", barrier"},
                  {"types", types},
                  {"operators", ops},
                  {"elements", "any count, any alignment to the element"},
                  {"one wait", std::to_string(variables::kTimeoutMs.unset / 1000) + " s unless set (" +
                                   variables::kTimeoutMs.name + ", or per communicator)"}};
  return facts;
}

}  // namespace nearlight::cli
