#include "cli/compare.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <tuple>
#include <utility>

#include "cli/append.hpp"

namespace nearlight::cli {

namespace {

using Key = std::tuple<std::string, std::uint64_t, std::string, std::string, int, Mode, int, std::string,
                       std::string, std::uint64_t, int>;

// What was forced without being part of the implementation's name. Files that are older than `forced` have
// names only.
std::string forced_beside_name(const ResultRow& row) {
  std::string kept, rest = row.forced;
  while (!rest.empty()) {
    const std::string part = rest.substr(0, rest.find(','));
    rest.erase(0, part.size() + 1);
    std::string in_name(1, '_');
    in_name.append(part, part.find('=') + 1);
    if (row.impl.find(in_name) == std::string::npos) kept.append(part).append(1, ',');
  }
  return kept;
}

Key key_of(const ResultRow& row) {
  return {row.collective,          row.bytes,   row.dtype, row.op, row.ranks, row.mode, row.chain, row.impl,
          forced_beside_name(row), row.scratch, row.jobs};
}

// Each kind of row of a file once, in the file's order.
std::vector<ResultRow> medians(const ResultFile& file) {
  std::map<Key, std::vector<const ResultRow*>> kinds;
  std::vector<Key> order;
  for (const ResultRow& row : file.rows) {
    auto& rows = kinds[key_of(row)];
    if (rows.empty()) order.push_back(key_of(row));
    rows.push_back(&row);
  }
  std::vector<ResultRow> all;
  for (const Key& key : order) {
    auto& rows = kinds[key];
    std::sort(rows.begin(), rows.end(), [](const auto* a, const auto* b) { return a->p50_us < b->p50_us; });
    all.push_back(*rows[(rows.size() - 1) / 2]);
    // A wrong result of any of them spoils the kind.
    for (const ResultRow* row : rows) all.back().wrong = std::max(all.back().wrong, row->wrong);
  }
  return all;
}

ComparedRow judge(const ResultRow& before, const ResultRow& after) {
  ComparedRow compared{after, before.p50_us, after.p50_us, 0, Change::same};
  compared.limit_us = std::max({kLeastChange * before.p50_us, noise_us(before), noise_us(after)});
  const double change_us = after.p50_us - before.p50_us;
  if (before.wrong != 0 || after.wrong != 0) {
    compared.change = Change::wrong;
  } else if (std::fabs(change_us) > compared.limit_us) {
    compared.change = change_us > 0 ? Change::slower : Change::faster;
  }
  return compared;
}

std::vector<std::string> differences_of(const ResultFile& before, const ResultFile& after) {
  std::vector<std::string> lines;
  const auto look = [&lines](const std::string& name, const std::string& a, const std::string& b) {
    if (a != b) lines.push_back(name + ": '" + a + "' -> '" + b + "'");
  };
  const Machine &a = before.machine, &b = after.machine;
  look("machine.gpu", a.gpu, b.gpu);
  look("machine.gpus", std::to_string(a.gpus), std::to_string(b.gpus));
  look("machine.link", a.link, b.link);
  look("machine.driver", a.driver, b.driver);
  look("machine.cuda", a.cuda, b.cuda);
  look("machine.nccl", a.nccl, b.nccl);
  look("machine.cpu", a.cpu, b.cpu);
  std::map<std::string, std::pair<std::string, std::string>> variables;
  for (const auto& [name, value] : before.env) variables[name].first = value;
  for (const auto& [name, value] : after.env) variables[name].second = value;
  for (const auto& [name, values] : variables) look("env." + name, values.first, values.second);
  return lines;
}

std::string us_text(const std::optional<double>& us) {
  char text[32];
  std::snprintf(text, sizeof text, "%9.3f", us.value_or(0));
  return us ? text : "-";
}

}  // namespace

const char* name_of(Change change) {
  switch (change) {
    case Change::same:
      return "same";
    case Change::slower:
      return "slower";
    case Change::faster:
      return "faster";
    case Change::wrong:
      return "wrong";
    case Change::only_old:
      return "only old";
    case Change::only_new:
      return "only new";
  }
  return "invalid";
}

Result<Comparison> compare(const ResultFile& old_file, const ResultFile& new_file) {
  Comparison comparison;
  comparison.differences = differences_of(old_file, new_file);
  std::map<Key, ResultRow> before;
  const std::vector<ResultRow> old_rows = medians(old_file);
  for (const ResultRow& row : old_rows) before.emplace(key_of(row), row);
  bool matched = false;
  for (const ResultRow& row : medians(new_file)) {
    const auto found = before.find(key_of(row));
    if (found == before.end()) {
      comparison.rows.push_back({row, std::nullopt, row.p50_us, 0, Change::only_new});
      continue;
    }
    matched = true;
    comparison.rows.push_back(judge(found->second, row));
    before.erase(found);
  }
  if (!matched) {
    return failure(Code::invalid_argument,
                   "no row of the one file is in the other: none has the same collective, bytes, dtype, op, "
                   "ranks, mode, chain, impl, forced, scratch and jobs");
  }
  for (const ResultRow& row : old_rows) {
    if (before.contains(key_of(row)))
      comparison.rows.push_back({row, row.p50_us, std::nullopt, 0, Change::only_old});
  }
  return comparison;
}

std::string comparison_table(const Comparison& comparison) {
  std::string text;
  if (!comparison.differences.empty()) {
    text += "#\n# The two were not measured under the same conditions:\n";
    for (const std::string& line : comparison.differences) text += "#   " + line + "\n";
  }
  append(text, "#\n# %10s  %-18s  %-14s  %-7s %5s %-6s  %9s %9s  %8s %8s  %s\n", "size", "impl", "collective",
         "type op", "ranks", "mode", "old p50", "new p50", "change", "limit", "verdict");
  append(text, "# %10s  %-18s  %-14s  %-7s %5s %-6s  %9s %9s  %8s %8s\n", "(B)", "", "", "", "", "", "(us)",
         "(us)", "(%)", "(%)");
  std::map<Change, int> counts;
  for (const ComparedRow& compared : comparison.rows) {
    const ResultRow& row = compared.row;
    ++counts[compared.change];
    append(text, "%12llu  %-18s  %-14s  %-7s %5d %-6s  %9s %9s", static_cast<unsigned long long>(row.bytes),
           row.impl.c_str(), row.collective.c_str(), (row.dtype + " " + row.op).c_str(), row.ranks,
           name_of(row.mode), us_text(compared.old_us).c_str(), us_text(compared.new_us).c_str());
    if (compared.old_us && compared.new_us) {
      append(text, "  %+8.1f %8.1f", (*compared.new_us / *compared.old_us - 1) * 100,
             compared.limit_us / *compared.old_us * 100);
    } else {
      append(text, "  %8s %8s", "-", "-");
    }
    append(text, "  %s", name_of(compared.change));
    if (!row.forced.empty()) append(text, " (%s)", row.forced.c_str());
    if (row.scratch != 0) append(text, " (scratch %llu)", static_cast<unsigned long long>(row.scratch));
    if (row.jobs > 1) append(text, " (%d jobs)", row.jobs);
    text += "\n";
  }
  append(text, "# Slower: %d, faster: %d, same: %d, wrong: %d, in one file only: %d\n",
         counts[Change::slower], counts[Change::faster], counts[Change::same], counts[Change::wrong],
         counts[Change::only_old] + counts[Change::only_new]);
  return text;
}

ExitCode exit_code_of(const Comparison& comparison) {
  ExitCode code = kExitOk;
  for (const ComparedRow& compared : comparison.rows) {
    if (compared.new_us && compared.row.wrong != 0) return kExitWrong;
    if (compared.change == Change::slower) code = kExitSlower;
  }
  return code;
}

Result<ResultFile> read_comparable(const std::string& path) {
  auto read = read_results(path);
  // Whatever is the matter with the file, the argument that names it is what to change.
  if (!read.ok()) return Status(Code::invalid_argument, read.status().text());
  ResultFile file = std::move(read).value();
  const std::vector<std::string> faults = find_faults(file);
  if (!faults.empty()) {
    return failure(Code::invalid_argument, "%s: %s%s", path.c_str(), faults[0].c_str(),
                   faults.size() > 1 ? " (and more)" : "");
  }
  if (file.rows.empty()) return failure(Code::invalid_argument, "%s: rows is empty", path.c_str());
  return file;
}

int compare_command(const CompareOptions& options) {
  const auto outcome = [&options]() -> Result<int> {
    NL_TRY_ASSIGN(const ResultFile old_file, read_comparable(options.old_path));
    NL_TRY_ASSIGN(const ResultFile new_file, read_comparable(options.new_path));
    auto compared = compare(old_file, new_file);
    if (!compared.ok()) return compared.status().with_context(options.old_path + ", " + options.new_path);
    std::printf("# old: %s, %s, commit %s\n# new: %s, %s, commit %s\n", options.old_path.c_str(),
                old_file.date.c_str(), old_file.commit.c_str(), options.new_path.c_str(),
                new_file.date.c_str(), new_file.commit.c_str());
    std::fputs(comparison_table(*compared).c_str(), stdout);
    return static_cast<int>(exit_code_of(*compared));
  }();
  if (outcome.ok()) return outcome.value();
  std::fprintf(stderr, "nearlight: %s\n", outcome.status().to_string().c_str());
  return exit_code_of(outcome.status());
}

}  // namespace nearlight::cli
