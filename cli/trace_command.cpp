#include "cli/trace_command.hpp"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <utility>

#include "base/variables.hpp"
#include "cli/append.hpp"
#include "cli/child_program.hpp"
#include "cli/exit_code.hpp"
#include "cli/text_file.hpp"

namespace nearlight::cli {

namespace {

namespace fs = std::filesystem;

trace::RankTrace rank_trace_of(const nlohmann::json& raw) {
  trace::RankTrace trace;
  trace.group = std::stoull(raw.at("group").get<std::string>(), nullptr, 16);
  raw.at("rank").get_to(trace.rank);
  raw.at("nranks").get_to(trace.nranks);
  raw.at("process").get_to(trace.process);
  raw.at("backend").get_to(trace.backend);
  raw.at("offset_ns").get_to(trace.offset_ns);
  raw.at("error_ns").get_to(trace.error_ns);
  raw.at("realtime_ns").get_to(trace.realtime_ns);
  for (const auto& row : raw.at("epochs")) {
    trace::RankTrace::Epoch epoch{row.at(0), row.at(1), row.at(2), {}};
    for (int i = 0; i < trace::kEvents; ++i) row.at(static_cast<std::size_t>(3 + i)).get_to(epoch.at_ns[i]);
    trace.epochs.push_back(epoch);
  }
  for (const auto& row : raw.at("turns")) {
    trace::RankTrace::Turn turn{row.at(0), row.at(1), row.at(2), row.at(3), row.at(4), {}};
    for (int i = 0; i < trace::kEvents; ++i) row.at(static_cast<std::size_t>(5 + i)).get_to(turn.at_ns[i]);
    trace.turns.push_back(turn);
  }
  for (const auto& row : raw.at("spans")) {
    trace.spans.push_back({row.at(0), row.at(1), row.at(2), row.at(3), row.at(4), row.at(5), row.at(6)});
    if (!trace::is_name(trace.spans.back().name)) throw std::invalid_argument("a span has no name");
  }
  return trace;
}

int tell(const Status& status) {
  std::fprintf(stderr, "nearlight: %s\n", status.text().c_str());
  return exit_code_of(status);
}

}  // namespace

Result<std::vector<trace::RankTrace>> read_traces(const std::string& folder) {
  std::vector<std::string> paths;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    if (entry.path().extension() == ".json") paths.push_back(entry.path().string());
  }
  if (error) return system_failure("listing " + folder, error.value());
  std::vector<trace::RankTrace> traces;
  for (const std::string& path : paths) {
    NL_TRY_ASSIGN(const std::string text, read_text_file(path));
    try {
      const auto json = nlohmann::json::parse(text);
      for (const auto& raw : json.at("nearlight")) traces.push_back(rank_trace_of(raw));
    } catch (const std::exception& wrong) {
      return failure(Code::invalid_argument, "%s is no trace: %s", path.c_str(), wrong.what());
    }
  }
  std::sort(traces.begin(), traces.end(), [](const auto& a, const auto& b) {
    return std::pair(a.group, a.rank) < std::pair(b.group, b.rank);
  });
  return traces;
}

std::string waits_table(const std::vector<trace::Waits>& rows) {
  std::string text = " rank      epochs    messages   waited us  unfinished  most for\n";
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const trace::Waits& row = rows[i];
    if (i > 0 && row.group != rows[i - 1].group) text += "\n";
    append(text, "%5d  %10llu  %10llu  %10.1f  %10llu  ", row.rank,
           static_cast<unsigned long long>(row.epochs), static_cast<unsigned long long>(row.messages),
           row.waited_us, static_cast<unsigned long long>(row.unfinished));
    if (row.most_for < 0 || row.waited_us <= 0) {
      text += "-\n";
    } else {
      append(text, "rank %d (%.0f %%)\n", row.most_for, 100 * row.most_us / row.waited_us);
    }
  }
  return text;
}

int trace_command(const TraceOptions& options) {
  const auto folder = ChildFolder::make();
  if (!folder.ok()) return tell(folder.status());
  const auto code = run_child(options.command, {{variables::kTrace.name, folder.value().path()}});
  if (!code.ok()) return tell(code.status());
  auto traces = read_traces(folder.value().path());
  if (!traces.ok()) return tell(traces.status());
  if (traces->empty()) {
    std::fprintf(stderr, "nearlight: nothing was traced: no communicator of the program came to its end\n");
    return code.value() != 0 ? code.value() : kExitUnfit;
  }
  trace::align(traces.value());
  if (const Status written = write_text_file(options.output, trace::chrome_json(traces.value()));
      !written.ok()) {
    return tell(written);
  }
  std::fprintf(stderr, "nearlight: %zu ranks in %s, for ui.perfetto.dev or chrome://tracing\n%s",
               traces->size(), options.output.c_str(), waits_table(trace::waits_of(traces.value())).c_str());
  return code.value();
}

}  // namespace nearlight::cli
