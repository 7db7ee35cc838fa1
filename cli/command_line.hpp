// The command line, parsed: what to do, and with which options.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "base/status.hpp"
#include "cli/bench/options.hpp"
#include "cli/compare.hpp"
#include "cli/demo_command.hpp"
#include "cli/dump_command.hpp"
#include "cli/info_command.hpp"
#include "cli/report/report.hpp"
#include "cli/run_command.hpp"
#include "cli/trace_command.hpp"
#include "cli/tune/tune_command.hpp"

namespace nearlight::cli {

// A text to print, and nothing else to do: --help, --version.
struct PrintText {
  std::string text;
};
// `nearlight sol` reads its own arguments.
struct SolArguments {
  std::vector<std::string> arguments;
};

using Invocation =
    std::variant<PrintText, SolArguments, bench::BenchOptions, CompareOptions, report::ReportOptions,
                 InfoOptions, DemoOptions, tune::TuneOptions, DumpOptions, TraceOptions, RunOptions>;

// `arguments`: those after the program's name. Errors are Code::invalid_argument and name the flag.
Result<Invocation> parse_command_line(const std::vector<std::string>& arguments);

}  // namespace nearlight::cli
