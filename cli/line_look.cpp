#include "cli/line_look.hpp"

#include <thread>
#include <utility>
#include <vector>

#include "bootstrap/in_process.hpp"
#include "probe/lines.hpp"
#include "runtime/create.hpp"

namespace nearlight::cli {

namespace {

std::pair<int, int> first_nvlink_pair(const probe::GpuFacts& gpus) {
  const auto count = static_cast<int>(gpus.devices.size());
  for (int a = 0; a < count; ++a) {
    for (int b = a + 1; b < count; ++b) {
      if (gpus.between(a, b) == probe::Link::nvlink) return {a, b};
    }
  }
  return {-1, -1};
}

}  // namespace

std::string look_at_lines(const probe::GpuFacts& gpus) {
  const auto [first, second] = first_nvlink_pair(gpus);
  if (first < 0) return "not tested: no two GPUs here have NVLink between them, so ll128 is not chosen";
  const int devices[] = {first, second};
  auto exchanges = bootstrap::make_in_process_group(2);
  std::vector<Status> outcomes(2);
  probe::LineReport report;
  const auto look = [&](int rank) {
    const auto at = static_cast<std::size_t>(rank);
    runtime::Options options;
    options.deterministic = false;  // so that what adds is tested, too
    const auto created = runtime::create_cuda_local(std::move(exchanges[at]), devices[rank], options);
    outcomes[at] = created.status();
    if (created.ok() && rank == 0) report = (*created)->lines();
  };
  std::thread other(look, 1);
  look(0);
  other.join();
  for (const Status& outcome : outcomes) {
    if (!outcome.ok()) return "not tested: " + outcome.text();
  }
  return "GPUs " + std::to_string(first) + " and " + std::to_string(second) + ", " + describe(report);
}

}  // namespace nearlight::cli
