#include "cli/bench/table.hpp"

#include <algorithm>
#include <cstdio>
#include <map>

#include "cli/append.hpp"

namespace nearlight::bench {

namespace {

using cli::append;

// Seven columns wide, with as many decimals as fit.
std::string time_text(double us) {
  char text[32];
  std::snprintf(text, sizeof text, us >= 10000 ? "%7.0f" : us >= 100 ? "%7.1f" : "%7.2f", us);
  return text;
}

std::string time_columns(const Measured* row, int nranks) {
  std::string text;
  if (row == nullptr) {
    append(text, "  %7s  %6s  %6s  %6s", "N/A", "N/A", "N/A", "N/A");
    return text;
  }
  auto summary = row->samples.summary();
  const double us = summary.ok() ? summary->mean_us : 0;
  append(text, "  %7s  %6.2f  %6.2f", time_text(us).c_str(), algorithm_gbs(row->what.bytes(), us),
         bus_gbs(row->what.bytes(), us, nranks, row->what.collective));
  if (row->checked) {
    append(text, "  %6zu", row->wrong);
  } else {
    append(text, "  %6s", "N/A");
  }
  return text;
}

std::string us_text(double us) {
  char text[32];
  std::snprintf(text, sizeof text, "%9.3f", us);
  return text;
}

const char* redop_of(const Case& what) { return is_reduction(what.collective) ? name_of(what.op) : "none"; }

}  // namespace

double algorithm_gbs(std::size_t bytes, double us) {
  return us > 0 ? static_cast<double>(bytes) / us * 1e-3 : 0;
}
double bus_gbs(std::size_t bytes, double us, int nranks, Collective collective) {
  const double others = static_cast<double>(nranks - 1) / std::max(nranks, 1);
  const double factor = collective == Collective::all_reduce ? 2.0 * others
                        : has_part_a_rank(collective)        ? others
                                                             : 1.0;
  return algorithm_gbs(bytes, us) * factor;
}

std::string perf_table(const std::vector<const Measured*>& rows, int nranks) {
  std::string text;
  const bool two = std::any_of(rows.begin(), rows.end(), [](const Measured* row) { return row->in_place; });
  append(text,
         "#\n#                                                              out-of-place                %s\n",
         two ? "       in-place          " : "");
  append(text, "#       size         count      type   redop    root     time   algbw   busbw  #wrong%s\n",
         two ? "     time   algbw   busbw  #wrong" : "");
  append(text, "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)        %s\n",
         two ? "     (us)  (GB/s)  (GB/s)        " : "");

  std::size_t wrong = 0;
  double bus = 0;
  std::size_t figures = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const Measured* out_of_place = rows[i];
    const Measured* in_place = nullptr;
    if (i + 1 < rows.size() && rows[i + 1]->in_place) in_place = rows[++i];
    append(text, "%12zu  %12zu  %8s  %6s  %6d", out_of_place->what.bytes(), out_of_place->what.count,
           name_of(out_of_place->what.type), redop_of(out_of_place->what),
           has_root(out_of_place->what.collective) ? out_of_place->what.root : -1);
    text += time_columns(out_of_place, nranks);
    if (two) text += time_columns(in_place, nranks);
    text += "\n";
    for (const Measured* row : {out_of_place, in_place}) {
      if (row == nullptr) continue;
      wrong += row->wrong;
      auto summary = row->samples.summary();
      bus += bus_gbs(row->what.bytes(), summary.ok() ? summary->mean_us : 0, nranks, row->what.collective);
      ++figures;
    }
  }
  if (std::all_of(rows.begin(), rows.end(), [](const Measured* row) { return row->checked; })) {
    append(text, "# Out of bounds values : %zu %s\n", wrong, wrong == 0 ? "OK" : "FAILED");
  } else {
    append(text, "# Out of bounds values : not checked\n");
  }
  append(text, "# Avg bus bandwidth    : %g\n", figures > 0 ? bus / static_cast<double>(figures) : 0.0);
  return text;
}

std::string percentile_table(const std::vector<cli::ResultRow>& rows) {
  const auto any = [&rows](auto has) { return std::any_of(rows.begin(), rows.end(), has); };
  const bool cpu = any([](const cli::ResultRow& row) { return row.cpu_us.has_value(); });
  const bool skew = any([](const cli::ResultRow& row) { return row.skew_us.has_value(); });
  const bool scratch = any([](const cli::ResultRow& row) { return row.scratch != 0; });
  std::string text;
  append(text, "#\n# %10s  %-9s  %9s %9s %9s %9s %9s %9s  %8s  %9s  %11s", "size", "impl", "min", "p50",
         "p95", "p99", "p99.9", "max", "samples", "ratio_sol", "ratio_limit");
  if (cpu) append(text, "  %9s", "cpu");
  if (skew) append(text, "  %9s", "skew");
  if (scratch) append(text, "  %9s", "scratch");
  append(text, "\n# %10s  %-9s  %9s %9s %9s %9s %9s %9s", "(B)", "", "(us)", "(us)", "(us)", "(us)", "(us)",
         "(us)");
  if (cpu || skew || scratch) append(text, "  %8s  %9s  %11s", "", "", "");
  if (cpu) append(text, "  %9s", "(us)");
  if (skew) append(text, "  %9s", "(us)");
  if (scratch) append(text, "  %9s", "(B)");
  text += "\n";
  for (const cli::ResultRow& row : rows) {
    append(text, "%12llu  %-9s  %9.3f %9.3f %9.3f %9.3f %9s %9.3f  %8llu  %9.2f  %11.2f",
           static_cast<unsigned long long>(row.bytes), row.impl.c_str(), row.min_us, row.p50_us, row.p95_us,
           row.p99_us, row.p999_us ? us_text(*row.p999_us).c_str() : "-", row.max_us,
           static_cast<unsigned long long>(row.samples), row.ratio_sol, row.ratio_limit);
    if (cpu) append(text, "  %9s", row.cpu_us ? us_text(*row.cpu_us).c_str() : "-");
    if (skew) append(text, "  %9s", row.skew_us ? us_text(*row.skew_us).c_str() : "-");
    if (scratch) append(text, "  %9llu", static_cast<unsigned long long>(row.scratch));
    text += "\n";
  }
  return text;
}

std::vector<OffsetSpread> spread_over_offsets(const std::vector<cli::ResultRow>& rows) {
  std::map<std::uint64_t, std::vector<const cli::ResultRow*>> by_size;
  for (const cli::ResultRow& row : rows) {
    if (row.impl == cli::kOwnImpl) by_size[row.bytes].push_back(&row);
  }
  std::vector<OffsetSpread> spreads;
  for (auto& [bytes, sized] : by_size) {
    std::sort(sized.begin(), sized.end(), [](const auto* a, const auto* b) { return a->p50_us < b->p50_us; });
    const cli::ResultRow& median = *sized[(sized.size() - 1) / 2];
    spreads.push_back({bytes, sized.size(), sized.front()->p50_us, median.p50_us, sized.back()->p50_us,
                       sized.front()->ratio_sol, median.ratio_sol});
  }
  return spreads;
}

std::string offset_table(const std::vector<OffsetSpread>& rows) {
  std::string text;
  append(text, "#\n# p50 over slot offsets\n# %10s  %7s  %9s %9s %9s  %14s  %16s\n", "size", "offsets",
         "best", "median", "worst", "best ratio_sol", "median ratio_sol");
  append(text, "# %10s  %7s  %9s %9s %9s\n", "(B)", "", "(us)", "(us)", "(us)");
  for (const OffsetSpread& row : rows) {
    append(text, "%12zu  %7zu  %9.3f %9.3f %9.3f  %14.2f  %16.2f\n", row.bytes, row.offsets, row.best_us,
           row.median_us, row.worst_us, row.ratio_best, row.ratio_median);
  }
  return text;
}

}  // namespace nearlight::bench
