#include "cli/report/report.hpp"

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "cli/against_peer.hpp"
#include "cli/demo_table.hpp"
#include "cli/report/chart.hpp"

namespace nearlight::report {

namespace {

using cli::ResultRow;

// What shares a plot.
using Kind = std::tuple<std::string, std::string, std::string, int, cli::Mode>;
Kind kind_of(const ResultRow& row) { return {row.collective, row.dtype, row.op, row.ranks, row.mode}; }

// One line of a plot: an implementation, its rows by size.
struct Line {
  std::string name;
  std::map<std::uint64_t, std::vector<const ResultRow*>> sizes;
  // Of several rows of a size (one for each slot offset), the one with the median p50 stands for them.
  const ResultRow& at(std::uint64_t bytes) const {
    std::vector<const ResultRow*> rows = sizes.at(bytes);
    std::sort(rows.begin(), rows.end(), [](const auto* a, const auto* b) { return a->p50_us < b->p50_us; });
    return *rows[(rows.size() - 1) / 2];
  }
};
using Lines = std::vector<Line>;

[[gnu::format(printf, 1, 2)]] std::string format(const char* form, ...) {
  char text[256];
  std::va_list arguments;
  va_start(arguments, form);
  std::vsnprintf(text, sizeof text, form, arguments);
  va_end(arguments);
  return text;
}

std::string us_text(double us) { return format("%.4g", us); }
std::string us_text(const std::optional<double>& us) { return us ? us_text(*us) : "-"; }

std::string title_of(const Kind& kind) {
  const auto& [collective, dtype, op, ranks, mode] = kind;
  std::string text = collective;
  if (dtype != "none") text += " " + dtype;
  if (op != "none") text += " " + op;
  return text + format(", %d rank%s, mode %s", ranks, ranks == 1 ? "" : "s", cli::name_of(mode));
}

std::string line_name(const ResultRow& row) {
  std::string name = row.impl;
  if (!row.forced.empty()) name += " (" + row.forced + ")";
  if (row.scratch != 0) name += ", scratch " + std::to_string(row.scratch);
  if (row.jobs > 1) name += ", " + std::to_string(row.jobs) + " jobs";
  return name;
}

void add_row(Lines& lines, const std::string& name, const ResultRow& row) {
  auto found = std::find_if(lines.begin(), lines.end(), [&](const Line& line) { return line.name == name; });
  if (found == lines.end()) found = lines.insert(lines.end(), {name, {}});
  found->sizes[row.bytes].push_back(&row);
}

// In the file's order.
std::vector<std::pair<Kind, Lines>> kinds_of(const cli::ResultFile& file) {
  std::vector<std::pair<Kind, Lines>> kinds;
  for (const ResultRow& row : file.rows) {
    const Kind kind = kind_of(row);
    auto found = std::find_if(kinds.begin(), kinds.end(), [&](const auto& one) { return one.first == kind; });
    if (found == kinds.end()) found = kinds.insert(kinds.end(), {kind, {}});
    add_row(found->second, line_name(row), row);
  }
  return kinds;
}

template <class Value>
Series series_of(const Line& line, const std::string& name, const char* unit, Value value) {
  Series series{name, {}, false};
  for (const auto& [bytes, rows] : line.sizes) {
    const std::optional<double> y = value(line.at(bytes));
    if (!y) continue;
    series.points.push_back(
        {static_cast<double>(bytes), *y, name + ", " + cli::size_text(bytes) + ": " + us_text(*y) + unit});
  }
  return series;
}

Chart latency(const std::string& title, const Lines& lines, bool with_limit) {
  Chart chart{"Latency, p50: " + title, "microseconds", {}};
  std::map<std::uint64_t, double> limits;
  for (const Line& line : lines) {
    chart.series.push_back(
        series_of(line, line.name, " us", [](const ResultRow& row) { return std::optional(row.p50_us); }));
    for (const auto& [bytes, rows] : line.sizes)
      limits.emplace(bytes, line.at(bytes).p50_us / line.at(bytes).ratio_limit);
  }
  if (!with_limit) return chart;
  Series limit{"limit of this machine", {}, true};
  for (const auto& [bytes, us] : limits) limit.points.push_back({static_cast<double>(bytes), us, ""});
  chart.series.push_back(std::move(limit));
  return chart;
}

Chart ratio(const std::string& title, const Lines& lines) {
  Chart chart{"Ratio of p50 to the limit: " + title, "times the limit", {}};
  for (const Line& line : lines) {
    chart.series.push_back(series_of(line, line.name, " x",
                                     [](const ResultRow& row) { return std::optional(row.ratio_limit); }));
  }
  return chart;
}

Chart percentiles(const std::string& title, const Line& line) {
  Chart chart{"Percentiles of " + line.name + ": " + title, "microseconds", {}};
  const std::pair<const char*, std::optional<double> (*)(const ResultRow&)> kCurves[] = {
      {"min", [](const ResultRow& row) { return std::optional(row.min_us); }},
      {"p50", [](const ResultRow& row) { return std::optional(row.p50_us); }},
      {"p95", [](const ResultRow& row) { return std::optional(row.p95_us); }},
      {"p99", [](const ResultRow& row) { return std::optional(row.p99_us); }},
      {"p99.9", [](const ResultRow& row) { return row.p999_us; }},
      {"max", [](const ResultRow& row) { return std::optional(row.max_us); }},
  };
  for (const auto& [name, value] : kCurves) {
    Series series = series_of(line, name, " us", value);
    if (!series.points.empty()) chart.series.push_back(std::move(series));
  }
  return chart;
}

std::string table_of(const Lines& lines) {
  std::string text =
      "<details><summary>Numbers</summary><div "
      "class=\"wide\"><table>\n<tr><th>implementation</th><th>size</th>"
      "<th>min</th><th>p50</th><th>p95</th><th>p99</th><th>p99.9</th><th>max</th><th>samples</th><th>CPU</th>"
      "<th>/ speed of light</th><th>/ limit</th><th>algorithm</th><th>protocol</th><th>grid</th>"
      "<th>wrong</th></tr>\n";
  for (const Line& line : lines) {
    for (const auto& [bytes, rows] : line.sizes) {
      const ResultRow& row = line.at(bytes);
      text += "<tr><td>" + escaped(line.name);
      if (rows.size() > 1) text += format(" (median of %zu)", rows.size());
      text += "</td>";
      for (const std::string& cell :
           {cli::size_text(bytes), us_text(row.min_us), us_text(row.p50_us), us_text(row.p95_us),
            us_text(row.p99_us), us_text(row.p999_us), us_text(row.max_us), std::to_string(row.samples),
            us_text(row.cpu_us), format("%.2f", row.ratio_sol), format("%.2f", row.ratio_limit),
            row.algorithm, row.protocol, row.grid == 0 ? std::string() : std::to_string(row.grid),
            std::to_string(row.wrong)}) {
        text += "<td>" + escaped(cell) + "</td>";
      }
      text += "</tr>\n";
    }
  }
  return text + "</table></div></details>\n";
}

std::string facts_of(const cli::ResultFile& file) {
  std::string text = "<table class=\"facts\">\n";
  const auto add = [&text](const std::string& name, const std::string& value) {
    text += "<tr><th>" + escaped(name) + "</th><td>" + escaped(value) + "</td></tr>\n";
  };
  const cli::Machine& machine = file.machine;
  const cli::Floors& floors = file.floors;
  if (machine.gpus > 0)
    add("GPUs", std::to_string(machine.gpus) + " x " + machine.gpu + ", link " + machine.link);
  add("driver, CUDA, NCCL", machine.driver + ", " + machine.cuda + ", " + machine.nccl);
  add("processor", machine.cpu);
  add("speed of light",
      format("%.4g us = round trip %.4g + one way %.4g", floors.sol_us, floors.l2rtt_us, floors.one_way_us));
  add("store bandwidth", format("%.4g GB/s", floors.store_gbs));
  if (floors.launch_floor_us) {
    add("empty kernel in a graph", us_text(floors.launch_floor_us) + " us, with dependent launch " +
                                       us_text(floors.launch_floor_pdl_us) + " us");
  }
  add("date", file.date);
  add("commit", file.commit);
  for (const auto& [name, value] : file.env) add(name, value);
  return text + "</table>\n<pre>" + escaped(file.command) + "</pre>\n";
}

// Where a peer overtakes us, or not: what the route's hand-over goes by.
std::string crossovers_of(const cli::ResultFile& file) {
  std::set<std::string> peers;
  for (const ResultRow& row : file.rows) {
    if (!row.impl.starts_with(cli::kOwnImpl)) peers.insert(row.impl);
  }
  std::string text;
  for (const std::string& peer : peers) {
    for (const std::string& line : cli::crossovers_with(file, peer)) text += "<p>" + escaped(line) + "</p>\n";
  }
  return text;
}

constexpr const char* kHead =
    "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"/>\n"
    "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src "
    "'unsafe-inline'\"/>\n"
    "<meta name=\"viewport\" content=\"width=device-width\"/>\n<title>nearlight: results</title>\n<style>\n"
    ":root{color-scheme:light dark}\n"
    "body{font:15px/1.45 system-ui,sans-serif;max-width:1500px;margin:1.5em auto;padding:0 1em}\n"
    "svg{font-size:12px;width:100%;max-width:720px}svg text{fill:currentColor}\n"
    ".plots{display:flex;flex-wrap:wrap;gap:1em}.plots svg{flex:1 1 480px}\n"
    ".wide,pre{overflow-x:auto}pre{padding:.6em;border:1px solid #8888}\n"
    "table{border-collapse:collapse;margin:.5em 0}th,td{padding:.15em .7em;text-align:right;"
    "border-bottom:1px solid #8884}\n"
    "td:first-child,th:first-child,.facts td{text-align:left}\n"
    "</style></head>\n<body><h1>nearlight: results</h1>\n"
    "<p>Times are those of the slowest rank. The limit is the launch floor of the mode, the speed of light "
    "and "
    "the bytes a rank must send at the store bandwidth, as measured in the same run. A point tells its "
    "number "
    "when the pointer rests on it.</p>\n";

// Of the kinds that several files have measured.
std::string overview(const std::vector<NamedFile>& files) {
  std::vector<std::pair<Kind, std::pair<Lines, std::set<std::size_t>>>> shared;
  for (std::size_t i = 0; i < files.size(); ++i) {
    for (const ResultRow& row : files[i].file.rows) {
      const Kind kind = kind_of(row);
      auto found =
          std::find_if(shared.begin(), shared.end(), [&](const auto& one) { return one.first == kind; });
      if (found == shared.end()) found = shared.insert(shared.end(), {kind, {}});
      add_row(found->second.first, line_name(row) + ", " + files[i].name, row);
      found->second.second.insert(i);
    }
  }
  std::string text;
  for (const auto& [kind, from] : shared) {
    const auto& [lines, sources] = from;
    if (sources.size() < 2) continue;
    text += "<div class=\"plots\">" + svg_of(latency(title_of(kind), lines, false)) +
            svg_of(ratio(title_of(kind), lines)) + "</div>\n";
  }
  return text.empty() ? text : "<section><h2>Across files</h2>\n" + text + "</section>\n";
}

}  // namespace

std::string html_of(const std::vector<NamedFile>& files) {
  std::string text = kHead + overview(files);
  for (const NamedFile& one : files) {
    text += "<section><h2>" + escaped(one.name) + "</h2>\n" + facts_of(one.file) + crossovers_of(one.file);
    for (const auto& [kind, lines] : kinds_of(one.file)) {
      const std::string title = title_of(kind);
      text += "<h3>" + escaped(title) + "</h3>\n<div class=\"plots\">\n" +
              svg_of(latency(title, lines, true)) + svg_of(ratio(title, lines));
      for (const Line& line : lines) text += svg_of(percentiles(title, line));
      text += "</div>\n" + table_of(lines);
    }
    text += "</section>\n";
  }
  return text + "</body></html>\n";
}

}  // namespace nearlight::report
