// `nearlight trace -- CMD`: runs a program with tracing on and puts its ranks' traces together.
#pragma once

#include <string>
#include <vector>

#include "base/status.hpp"
#include "trace/rank_trace.hpp"

namespace nearlight::cli {

struct TraceOptions {
  std::string output = "nearlight-trace.json";
  std::vector<std::string> command;  // program and arguments
};

// The traces in the files of a folder; those that are no traces are named.
Result<std::vector<trace::RankTrace>> read_traces(const std::string& folder);

// For each rank how long it waited and for whom.
std::string waits_table(const std::vector<trace::Waits>& rows);

// Returns the exit status: the program's own where it is not 0.
int trace_command(const TraceOptions& options);

}  // namespace nearlight::cli
