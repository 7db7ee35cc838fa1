#include "cli/bench/present.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdarg>
#include <cstdio>

#include <nearlight/build_info.hpp>
#include "cli/bench/table.hpp"

namespace nearlight::bench {

namespace {

[[gnu::format(printf, 2, 3)]] void append(std::string& text, const char* format, ...) {
  char line[512];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(line, sizeof line, format, arguments);
  va_end(arguments);
  text += line;
}

std::vector<std::string> impls_of(const std::vector<Measured>& measured) {
  std::vector<std::string> impls;
  for (const Measured& entry : measured) {
    if (std::find(impls.begin(), impls.end(), entry.impl) == impls.end()) impls.push_back(entry.impl);
  }
  return impls;
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
    row.op = name_of(entry.what.op);
    row.ranks = setting.ranks;
    row.mode = mode;
    row.chain = entry.chain;
    row.impl = entry.impl;
    row.algorithm = entry.choice.algorithm;
    row.protocol = entry.choice.protocol;
    row.grid = entry.choice.grid;
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

std::string tables(const BenchOptions& options, const Plan& plan, const Setting& setting,
                   const std::vector<Measured>& measured) {
  std::string text;
  const auto rows = rows_of(measured, setting, plan.mode);
  if (options.offsets > 0) {
    text += offset_table(spread_over_offsets(rows));
  } else {
    for (const std::string& impl : impls_of(measured)) {
      std::vector<const Measured*> own;
      for (const Measured& entry : measured) {
        if (entry.impl == impl) own.push_back(&entry);
      }
      append(text, "#\n# %s\n", impl.c_str());
      text += perf_table(own, setting.ranks);
    }
  }
  if (options.percentiles) text += percentile_table(rows);
  return text;
}

Status keep(const std::string& path, const std::vector<std::string>& arguments, const Setting& setting,
            std::vector<cli::ResultRow> rows) {
  if (path.empty()) return {};
  cli::ResultFile file;
  file.date = cli::now_utc();
  file.commit = build_info::commit;
  file.command = "nearlight";
  for (const std::string& argument : arguments)
    file.command.append(1, ' ').append(cli::without_folder(argument));
  file.env = cli::recorded_environment();
  file.machine = setting.machine;
  file.floors = setting.floors;
  file.rows = std::move(rows);
  return cli::write_results(file, path).with_context("--json " + path);
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
