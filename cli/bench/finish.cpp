#include "cli/bench/finish.hpp"

#include <cstdio>
#include <optional>
#include <utility>

#include "cli/bench/run_host.hpp"
#include "cli/compare.hpp"
#include "cli/exit_code.hpp"

namespace nearlight::bench {

int finish(const BenchOptions& options, const Plan& plan, const Setting& setting,
           const std::vector<Measured>& measured) {
  std::fputs(peer_settings(setting).c_str(), stdout);
  std::fputs(tables(options, plan, setting, measured).c_str(), stdout);
  std::fflush(stdout);
  // Before the file of --json is written, which may be the same.
  std::optional<cli::ResultFile> old_file;
  if (!options.compare.empty()) {
    auto read = cli::read_comparable(options.compare);
    if (!read.ok()) return report_failure(read.status().with_context("--compare"));
    old_file = std::move(read).value();
  }
  const cli::ResultFile file = file_of(options.arguments, setting, rows_of(measured, setting, plan.mode));
  if (const Status kept = keep(options.json, file); !kept.ok()) return report_failure(kept);
  const int code = verdict(measured);
  if (!old_file) return code;
  auto compared = cli::compare(*old_file, file);
  if (!compared.ok()) return report_failure(compared.status().with_context("--compare " + options.compare));
  std::fputs(cli::comparison_table(*compared).c_str(), stdout);
  std::fflush(stdout);
  // A wrong result is worse news than a slow one.
  return code == cli::kExitOk ? cli::exit_code_of(*compared) : code;
}

}  // namespace nearlight::bench
