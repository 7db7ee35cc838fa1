// The program `nearlight`.
#include <cstdio>
#include <string>
#include <variant>
#include <vector>

#include "base/variables.hpp"
#include "cli/bench/bench_command.hpp"
#include "cli/command_line.hpp"
#include "cli/exit_code.hpp"
#include "cli/sol_command.hpp"

namespace {

using namespace nearlight;

struct Run {
  int operator()(const cli::PrintText& print) const {
    std::fputs(print.text.c_str(), stdout);
    return cli::kExitOk;
  }
  int operator()(const cli::SolArguments& sol) const { return cli::sol_command(sol.arguments); }
  int operator()(const cli::CompareOptions& options) const { return cli::compare_command(options); }
  int operator()(const report::ReportOptions& options) const { return report::report_command(options); }
  int operator()(const cli::InfoOptions& options) const { return cli::info_command(options); }
  int operator()(const cli::DemoOptions& options) const { return cli::demo_command(options); }
  int operator()(const cli::TraceOptions& options) const { return cli::trace_command(options); }
  int operator()(const cli::DumpOptions& options) const { return cli::dump_command(options); }
  int operator()(const bench::BenchOptions& options) const { return bench::bench_command(options); }
  int operator()(const tune::TuneOptions& options) const { return tune::tune_command(options); }
};

}  // namespace

int main(int argc, char** argv) {
  variables::warn_about_unknown();
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  auto invocation = cli::parse_command_line(arguments);
  if (!invocation.ok()) {
    std::fprintf(stderr, "nearlight: %s\n(--help tells more)\n", invocation.status().text().c_str());
    return cli::kExitUsage;
  }
  return std::visit(Run{}, *invocation);
}
