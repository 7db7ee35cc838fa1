#include "cli/bench/present.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include <nearlight/build_info.hpp>
#include "cli/append.hpp"
#include "cli/bench/paired.hpp"
#include "cli/bench/table.hpp"

namespace nearlight::bench {

namespace {

using cli::append;

// An implementation and the scratch it was measured with, which are what goes into one table.
using Series = std::pair<std::string, std::uint64_t>;

std::vector<Series> series_of(const std::vector<Measured>& measured) {
  std::vector<Series> all;
  for (const Measured& entry : measured) {
    const Series series{entry.impl, entry.scratch};
    if (std::find(all.begin(), all.end(), series) == all.end()) all.push_back(series);
  }
  return all;
}

}  // namespace

std::vector<cli::ResultRow> rows_of(const std::vector<Measured>& measured, const Setting& setting,
                                    cli::Mode mode) {
  std::vector<cli::ResultRow> rows;
  for (const Measured& entry : measured) {
    if (entry.in_place) continue;
    auto summary = entry.samples.summary();
    if (!summary.ok()) continue;
    cli::ResultRow row;
    row.bytes = entry.what.bytes();
    row.dtype = short_name_of(entry.what.type);
    row.collective = name_of(entry.what.collective);
    row.op = is_reduction(entry.what.collective) ? name_of(entry.what.op) : "none";
    row.ranks = setting.ranks;
    row.mode = mode;
    row.chain = entry.chain;
    row.impl = entry.impl;
    row.algorithm = entry.choice.algorithm;
    row.protocol = entry.choice.protocol;
    row.grid = entry.choice.grid;
    row.forced = entry.choice.forced;
    row.scratch = entry.scratch;
    row.jobs = entry.jobs;
    row.cpu_us = entry.cpu_us;
    if (auto skew = entry.skew.summary(); skew.ok()) row.skew_us = skew->p50_us;
    row.cost = entry.cost;
    row.wrong = entry.wrong;
    cli::set_times(row, *summary, setting.floors);
    rows.push_back(std::move(row));
  }
  return rows;
}

std::string heading(const BenchOptions& options, const Plan& plan, const Setting& setting) {
  std::string text;
  append(text, "# nearlight %s %s: %s, backend %s (%s), %d ranks\n", build_info::version, build_info::commit,
         options.collective.c_str(), setting.backend.c_str(), setting.memory.c_str(), setting.ranks);
  append(text, "# mode %s, chain %d, samples %zu in %zu turns, warmup %zu, check %d\n",
         cli::name_of(plan.mode), plan.chain, plan.samples, plan.rounds, plan.warmup, plan.check ? 1 : 0);
  if (!setting.placement.empty()) append(text, "# fastest slots: %s\n", setting.placement.c_str());
  if (options.jobs > 1)
    append(text, "# %d jobs at a time; the times are the first one's, results are checked of all\n",
           options.jobs);
  if (plan.late.count() > 0) {
    append(text, "# rank %d comes %lld us late to every start (--skew)\n", setting.ranks - 1,
           static_cast<long long>(plan.late.count()));
  }
  for (std::size_t rank = 0; rank < setting.places.size(); ++rank) {
    append(text, "#  Rank %2zu on %s\n", rank, setting.places[rank].c_str());
  }
  append(text, "# speed of light %.3f us = round trip %.3f + one way %.3f; store %.1f GB/s",
         setting.floors.sol_us, setting.floors.l2rtt_us, setting.floors.one_way_us, setting.floors.store_gbs);
  if (setting.floors.launch_floor_us) {
    append(text, "; launch %.3f, dependent %.3f us", *setting.floors.launch_floor_us,
           setting.floors.launch_floor_pdl_us.value_or(0));
  }
  return text + "\n";
}

std::string peer_settings(const Setting& setting) {
  if (setting.peers.empty()) return "";
  std::string text("#\n");
  for (const auto& [impl, settings] : setting.peers) {
    append(text, "# %s: %s\n", impl.c_str(), settings.c_str());
  }
  text += "# environment:";
  for (const auto& [name, value] : cli::recorded_environment()) {
    text.append(" ").append(name).append("=").append(value);
  }
  return text + "\n";
}

std::string tables(const BenchOptions& options, const Plan& plan, const Setting& setting,
                   const std::vector<Measured>& measured) {
  std::string text;
  const auto rows = rows_of(measured, setting, plan.mode);
  if (options.offsets > 0) {
    text += offset_table(spread_over_offsets(rows));
  } else {
    for (const auto& [impl, scratch] : series_of(measured)) {
      std::vector<const Measured*> own;
      for (const Measured& entry : measured) {
        if (entry.impl == impl && entry.scratch == scratch) own.push_back(&entry);
      }
      append(text, "#\n# %s", impl.c_str());
      if (scratch != 0) append(text, ", scratch %llu", static_cast<unsigned long long>(scratch));
      text += "\n";
      text += perf_table(own, setting.ranks);
    }
  }
  if (options.percentiles) text += percentile_table(rows);
  if (options.paired != Paired::none) text += cost_table(options.paired, measured);
  return text;
}

cli::ResultFile file_of(const std::vector<std::string>& arguments, const Setting& setting,
                        std::vector<cli::ResultRow> rows) {
  cli::ResultFile file;
  file.date = cli::now_utc();
  file.commit = build_info::commit;
  file.command = "nearlight";
  for (const std::string& argument : arguments)
    file.command.append(1, ' ').append(cli::without_folder(argument));
  file.env = cli::recorded_environment();
  file.machine = setting.machine;
  file.floors = setting.floors;
  for (const auto& [impl, settings] : setting.peers) {
    if (std::any_of(rows.begin(), rows.end(), [&](const auto& row) { return row.impl == impl; }))
      file.peers.emplace(impl, settings);
  }
  file.rows = std::move(rows);
  return file;
}

Status keep(const std::string& path, const cli::ResultFile& file) {
  if (path.empty()) return {};
  return cli::write_results(file, path).with_context("--json " + path);
}

Progress part_of(const Progress& whole, std::size_t turn, std::size_t turns) {
  if (!whole) return {};
  return [whole, turn, turns](double done, const std::string& what) {
    whole((static_cast<double>(turn) + done) / static_cast<double>(turns), what);
  };
}

Progress progress_line() {
  if (!isatty(STDERR_FILENO)) return {};
  return [](double done, const std::string& what) {
    std::fprintf(stderr, "\r\033[K%3.0f %% %s", done * 100, what.c_str());
    std::fflush(stderr);
  };
}

void clear_progress_line() {
  if (isatty(STDERR_FILENO)) std::fprintf(stderr, "\r\033[K");
}

}  // namespace nearlight::bench
