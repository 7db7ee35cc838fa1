#include "cli/results.hpp"

#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <iterator>

extern char** environ;

namespace nearlight::cli {

namespace {
constexpr std::string_view kRecordedPrefixes[] = {"NEARLIGHT_", "NCCL_", "CUDA_", "NVSHMEM_",
                                                  "TORCH_SYMM_MEM_"};
}  // namespace

const char* name_of(Mode mode) {
  switch (mode) {
    case Mode::kernel:
      return "kernel";
    case Mode::graph:
      return "graph";
    case Mode::eager:
      return "eager";
  }
  return "invalid";
}

std::optional<Mode> parse_mode(std::string_view text) {
  for (const Mode mode : {Mode::kernel, Mode::graph, Mode::eager}) {
    if (text == name_of(mode)) return mode;
  }
  return std::nullopt;
}

Floors floors_of(const probe::SolReport& report) {
  Floors floors;
  floors.l2rtt_us = report.l2rtt_us;
  floors.one_way_us = report.one_way_us;
  floors.sol_us = report.sol_us;
  floors.store_gbs = report.store_gbs;
  floors.launch_floor_us = report.launch_floor_us;
  floors.launch_floor_pdl_us = report.launch_floor_pdl_us;
  floors.eager_floor_us = report.eager_floor_us;
  return floors;
}

double bytes_to_send(std::string_view collective, std::uint64_t bytes, int ranks) {
  if (ranks <= 1 || collective == "barrier") return 0;
  const double whole = static_cast<double>(bytes);
  const double others = static_cast<double>(ranks - 1) / ranks;  // the share that is not the rank's own
  if (collective == "all_reduce") return 2 * others * whole;
  if (collective == "all_gather" || collective == "reduce_scatter" || collective == "all_to_all")
    return others * whole;
  return whole;
}

double limit_us(const Floors& floors, std::string_view collective, std::uint64_t bytes, int ranks,
                Mode mode) {
  double launch_us = 0;
  if (mode == Mode::eager) launch_us = floors.eager_floor_us.value_or(0);
  if (mode == Mode::graph) {
    const double plain_us = floors.launch_floor_us.value_or(0);
    launch_us = std::min(plain_us, floors.launch_floor_pdl_us.value_or(plain_us));
  }
  const double bytes_per_us = floors.store_gbs * 1e3;
  return launch_us + floors.sol_us + bytes_to_send(collective, bytes, ranks) / bytes_per_us;
}

void set_times(ResultRow& row, const trace::Summary& summary, const Floors& floors) {
  row.min_us = summary.min_us;
  row.p50_us = summary.p50_us;
  row.p95_us = summary.p95_us;
  row.p99_us = summary.p99_us;
  row.p999_us = summary.p999_us;
  row.max_us = summary.max_us;
  row.samples = summary.count;
  row.ratio_sol = summary.p50_us / floors.sol_us;
  row.ratio_limit = summary.p50_us / limit_us(floors, row.collective, row.bytes, row.ranks, row.mode);
}

bool is_recorded(std::string_view variable) {
  return std::any_of(std::begin(kRecordedPrefixes), std::end(kRecordedPrefixes),
                     [&](std::string_view prefix) { return variable.starts_with(prefix); });
}

std::string without_folder(std::string_view text) {
  if (!text.starts_with('/')) return std::string(text);
  while (text.size() > 1 && text.ends_with('/')) text.remove_suffix(1);
  return std::string(text.substr(text.rfind('/') + 1));
}

std::map<std::string, std::string> recorded_environment() {
  std::map<std::string, std::string> recorded;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const std::size_t equals = text.find('=');
    if (equals == std::string_view::npos || !is_recorded(text.substr(0, equals))) continue;
    recorded.emplace(text.substr(0, equals), without_folder(text.substr(equals + 1)));
  }
  return recorded;
}

std::string now_utc() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &utc);
  return text;
}

}  // namespace nearlight::cli
