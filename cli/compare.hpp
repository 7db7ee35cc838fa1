// Two result files, row by row: what became slower or faster between them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/status.hpp"
#include "cli/exit_code.hpp"
#include "cli/results.hpp"

namespace nearlight::cli {

// A change of p50 counts from this share of the old one on, and only when it exceeds both rows' own noise.
inline constexpr double kLeastChange = 0.02;
// A row's noise, microseconds: how far its p95 lies above its p50.
inline double noise_us(const ResultRow& row) { return row.p95_us - row.p50_us; }
// The rule in words, for --help.
inline constexpr const char* kNoiseRule =
    "A change counts when p50 differs by more than the largest of 2 % of the old p50, the old row's noise "
    "and\n"
    "the new row's noise; a row's noise is p95 - p50.";

enum class Change { same, slower, faster, wrong, only_old, only_new };
const char* name_of(Change change);

// One kind of row: collective, bytes, dtype, op, ranks, mode, chain, impl, forced, scratch and jobs are
// equal.
// Where a file has several of a kind (one for each slot offset), the one with the median p50 stands for them.
struct ComparedRow {
  ResultRow row;  // the new one where there is one
  std::optional<double> old_us, new_us;
  double limit_us = 0;  // what a change must exceed
  Change change = Change::same;
};

struct Comparison {
  std::vector<ComparedRow> rows;         // in the new file's order, then those that only the old one has
  std::vector<std::string> differences;  // of machine, driver and environment: "machine.driver: '1' -> '2'"
};

// invalid_argument when no kind of row is in both files.
Result<Comparison> compare(const ResultFile& old_file, const ResultFile& new_file);

// For a person; lines that are not rows begin with '#'.
std::string comparison_table(const Comparison& comparison);

// kExitWrong when a new row has wrong results, else kExitSlower when something became slower.
ExitCode exit_code_of(const Comparison& comparison);

// A result file without faults; errors name the file and the first field or row.
Result<ResultFile> read_comparable(const std::string& path);

struct CompareOptions {
  std::string old_path, new_path;
};
// `nearlight compare`. Returns the exit status.
int compare_command(const CompareOptions& options);

}  // namespace nearlight::cli
