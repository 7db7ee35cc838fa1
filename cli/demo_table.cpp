#include "cli/demo_table.hpp"

#include <algorithm>
#include <cstdio>

#include "cli/append.hpp"

namespace nearlight::cli {

namespace {

const char* what_it_holds(Mode mode) {
  switch (mode) {
    case Mode::kernel:
      return "inside a kernel";
    case Mode::graph:
      return "in a CUDA graph, launch included";
    case Mode::eager:
      return "from call to completion";
  }
  return "";
}

const bench::Measured* find(const std::vector<bench::Measured>& measured, const char* impl,
                            std::size_t bytes) {
  for (const bench::Measured& entry : measured) {
    if (entry.impl == impl && entry.what.bytes() == bytes && !entry.in_place) return &entry;
  }
  return nullptr;
}

std::string times_text(const trace::Summary& summary) {
  std::string text;
  append(text, "%9.2f %9.2f %9.2f", summary.p50_us, summary.p95_us, summary.p99_us);
  if (summary.p999_us) {
    append(text, " %9.2f", *summary.p999_us);
  } else {
    append(text, " %9s", "-");
  }
  return text;
}

}  // namespace

std::string size_text(std::size_t bytes) {
  char text[32];
  if (bytes < 1024) {
    std::snprintf(text, sizeof text, "%zu B", bytes);
  } else if (bytes < 1024 * 1024) {
    std::snprintf(text, sizeof text, "%.4g KiB", static_cast<double>(bytes) / 1024);
  } else {
    std::snprintf(text, sizeof text, "%.4g MiB", static_cast<double>(bytes) / (1024 * 1024));
  }
  return text;
}

std::string demo_table(const Workload& workload, const std::string& where, const bench::Setting& setting,
                       Mode mode, const std::vector<bench::Measured>& measured) {
  std::string text;
  const bool peer =
      std::any_of(measured.begin(), measured.end(), [](const auto& entry) { return entry.impl == "nccl"; });
  append(text, "%s: the all-reduces of one decode step, %s sum over %d ranks\n", workload.name.c_str(),
         short_name_of(workload.dtype), setting.ranks);
  append(text, "%s; memory %s\n", where.c_str(), setting.memory.c_str());
  append(text, "times in us, of the slowest rank, %s\n\n", what_it_holds(mode));

  append(text, "%5s  %9s  %5s  %9s %9s %9s %9s  %7s  %7s  %9s", "batch", "size", "calls", "p50", "p95", "p99",
         "p99.9", "x light", "x limit", "step (us)");
  if (peer) append(text, "  %9s  %9s  %6s", "NCCL p50", "NCCL step", "faster");
  text += "\n";

  std::size_t wrong = 0;
  for (const bench::Measured& entry : measured) wrong += entry.wrong;
  for (const WorkloadSize& size : sizes_of(workload)) {
    const bench::Measured* own = find(measured, kOwnImpl.data(), size.bytes);
    if (own == nullptr) continue;
    auto summary = own->samples.summary();
    if (!summary.ok()) continue;
    ResultRow row;
    row.bytes = size.bytes;
    row.ranks = setting.ranks;
    row.mode = mode;
    set_times(row, *summary, setting.floors);
    append(text, "%5d  %9s  %5d  %s  %7.2f  %7.2f  %9.1f", size.batch, size_text(size.bytes).c_str(),
           size.per_step, times_text(*summary).c_str(), row.ratio_sol, row.ratio_limit,
           summary->mean_us * size.per_step);
    if (const bench::Measured* nccl = find(measured, "nccl", size.bytes)) {
      if (auto theirs = nccl->samples.summary(); theirs.ok()) {
        append(text, "  %9.2f  %9.1f  %5.2fx", theirs->p50_us, theirs->mean_us * size.per_step,
               theirs->p50_us / summary->p50_us);
      }
    }
    text += "\n";
  }

  const Floors& floors = setting.floors;
  append(text, "\nspeed of light here: %.3f us = local round trip %.3f + one way to a peer %.3f\n",
         floors.sol_us, floors.l2rtt_us, floors.one_way_us);
  append(text, "limit: that, plus the bytes a rank must send at %.1f GB/s%s\n", floors.store_gbs,
         floors.launch_floor_us && mode == Mode::graph ? ", plus a kernel's launch" : "");
  append(text, "step: calls times the mean\n");
  append(text, "wrong results: %zu%s\n", wrong,
         wrong == 0 ? " (every size checked against a reference, on all ranks)" : "");
  return text;
}

}  // namespace nearlight::cli
