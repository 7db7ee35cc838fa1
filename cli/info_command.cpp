#include "cli/info_command.hpp"

#include <cstdio>
#include <string>
#include <vector>

#include "algorithm/kinds.hpp"
#include "base/types.hpp"
#include "base/variables.hpp"
#include "cli/bench/options.hpp"
#include "cli/demo_table.hpp"
#include "cli/exit_code.hpp"
#include "cli/info_facts.hpp"
#include "cli/workload.hpp"

namespace nearlight::cli {

namespace {

void print_routes(const char* where, const std::vector<RouteFact>& routes) {
  std::printf("\nroutes of all_reduce, %s\n", where);
  for (const RouteFact& fact : routes) {
    std::printf("  %9s  %-8s  %-8s  %3u x %-4u  %s\n", size_text(fact.bytes).c_str(), fact.algorithm.c_str(),
                fact.protocol.c_str(), fact.grid, fact.threads, fact.reason.c_str());
  }
}

void print_table(const char* where, const TableFact& table) {
  std::printf("\nroute table, %s: %s\n", where, table.source.c_str());
  if (!table.problem.empty()) std::printf("  no communicator can be made: %s\n", table.problem.c_str());
  for (const auto& [name, value] : table.numbers) {
    std::printf("  %-24s  %llu\n", name.c_str(), static_cast<unsigned long long>(value));
  }
}

void print_gpus(const InfoFacts& facts) {
  if (facts.gpus.devices.empty()) {
    std::printf("\nGPUs       none: %s\n", facts.gpus.problem.c_str());
    return;
  }
  std::printf("\nGPUs       driver %s, CUDA %s\n", facts.gpus.driver.c_str(), facts.gpus.cuda.c_str());
  for (std::size_t i = 0; i < facts.gpus.devices.size(); ++i) {
    const auto& device = facts.gpus.devices[i];
    std::printf("  %2zu  %s, %.1f GiB, %d SMs, compute capability %d.%d; peers:", i, device.name.c_str(),
                static_cast<double>(device.memory_bytes) / (1024.0 * 1024 * 1024), device.sm_count,
                device.compute_major, device.compute_minor);
    for (std::size_t j = 0; j < facts.gpus.devices.size(); ++j) {
      std::printf(
          " %s", i == j ? "-" : probe::name_of(facts.gpus.between(static_cast<int>(i), static_cast<int>(j))));
    }
    std::printf("\n");
  }
}

}  // namespace

int info_command(const InfoOptions& options) {
  if (options.variables) {
    std::printf("%s", variables::reference_page().c_str());
    return kExitOk;
  }
  const InfoFacts facts = gather_info();
  if (options.json) {
    std::printf("%s\n", info_json(facts).c_str());
    return kExitOk;
  }
  std::printf("nearlight  %s, commit %s\n", facts.version.c_str(), facts.commit.c_str());
  std::printf("built      %s, %s; CUDA %s; NCCL headers %s\n", facts.build_type.c_str(),
              facts.compiler.c_str(), facts.cuda_compiler.empty() ? "no" : facts.cuda_compiler.c_str(),
              facts.nccl_headers.c_str());
  std::printf("processor  %s\n", facts.cpu.c_str());
  if (facts.place_problem.empty()) {
    std::printf("process    %s\n", facts.place.c_str());
  } else {
    std::printf("process    no rank: %s\n", facts.place_problem.c_str());
  }

  std::printf("\nbackends\n");
  for (const BackendFact& backend : facts.backends) {
    std::printf("  %-12s %-3s  %s\n", backend.name.c_str(), backend.available ? "yes" : "no",
                backend.why.c_str());
  }
  print_gpus(facts);
  std::printf("\nlines      %s\n", facts.lines.c_str());
  if (facts.nccl_path.empty()) {
    std::printf("\nNCCL       none: %s\n", facts.nccl_problem.c_str());
  } else {
    std::printf("\nNCCL       %s, %s\n", facts.nccl_version.c_str(), facts.nccl_path.c_str());
    if (!facts.nccl_faults.empty()) std::printf("           faults: %s\n", facts.nccl_faults.c_str());
  }

  print_table("2 CPU ranks", facts.host_table);
  print_table("2 GPU ranks", facts.gpu_table);
  print_routes("f32 sum, 2 CPU ranks", facts.host_routes);
  print_routes("f32 sum, 2 GPU ranks", facts.gpu_routes);

  std::printf("\nlimits\n");
  for (const auto& [name, value] : facts.limits) std::printf("  %-22s %s\n", name.c_str(), value.c_str());
  std::printf("\nworkloads ");
  for (const std::string& name : built_in_workloads()) std::printf(" %s", name.c_str());
  std::printf("\n");
  return kExitOk;
}

}  // namespace nearlight::cli
