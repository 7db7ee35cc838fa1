#include "cli/program.hpp"

#include <cstdio>
#include <string>
#include <variant>
#include <vector>

#include "base/variables.hpp"
#include "cli/bench/bench_command.hpp"
#include "cli/command_line.hpp"
#include "cli/exit_code.hpp"
#include "cli/sol_command.hpp"

namespace nearlight::cli {

namespace {

struct Run {
  int operator()(const PrintText& print) const {
    std::fputs(print.text.c_str(), stdout);
    return kExitOk;
  }
  int operator()(const SolArguments& sol) const { return sol_command(sol.arguments); }
  int operator()(const CompareOptions& options) const { return compare_command(options); }
  int operator()(const report::ReportOptions& options) const { return report::report_command(options); }
  int operator()(const InfoOptions& options) const { return info_command(options); }
  int operator()(const DemoOptions& options) const { return demo_command(options); }
  int operator()(const TraceOptions& options) const { return trace_command(options); }
  int operator()(const RunOptions& options) const { return run_command(options); }
  int operator()(const DumpOptions& options) const { return dump_command(options); }
  int operator()(const bench::BenchOptions& options) const { return bench::bench_command(options); }
  int operator()(const tune::TuneOptions& options) const { return tune::tune_command(options); }
};

}  // namespace

int program(int argc, char** argv) {
  variables::warn_about_unknown();
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  auto invocation = parse_command_line(arguments);
  if (!invocation.ok()) {
    std::fprintf(stderr, "nearlight: %s\n(--help tells more)\n", invocation.status().text().c_str());
    return kExitUsage;
  }
  return std::visit(Run{}, *invocation);
}

}  // namespace nearlight::cli
