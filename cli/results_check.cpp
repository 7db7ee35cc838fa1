#include <algorithm>
#include <cmath>
#include <cstdarg>
#include <cstdio>
#include <iterator>
#include <regex>
#include <set>
#include <tuple>
#include <utility>

#include "cli/results.hpp"

namespace nearlight::cli {

namespace {

constexpr std::string_view kDtypes[] = {"i8",   "u8",  "i32", "u32",    "i64",    "u64", "f16",
                                        "bf16", "f32", "f64", "f8e4m3", "f8e5m2", "none"};
constexpr std::string_view kOps[] = {"sum", "prod", "max", "min", "avg", "mulsum", "none"};
constexpr double kLongestUs = 1e9;        // a sample of a quarter of an hour is a mistake
constexpr double kRatioTolerance = 0.01;  // of ratios recomputed from rounded times

template <class List>
bool contains(const List& list, std::string_view text) {
  return std::find(std::begin(list), std::end(list), text) != std::end(list);
}

bool reduces(std::string_view collective) {
  return collective == "all_reduce" || collective == "reduce_scatter" || collective == "reduce";
}

class Faults {
 public:
  [[gnu::format(printf, 2, 3)]] void add(const char* format, ...) {
    std::va_list args;
    va_start(args, format);
    char text[512];
    std::vsnprintf(text, sizeof text, format, args);
    va_end(args);
    lines_.push_back(where_ + text);
  }
  // Leads the lines that follow.
  void set_place(std::string where) { where_ = std::move(where); }

  void check_text(const char* field, const std::string& text) {
    if (text.empty()) add("%s is empty", field);
  }
  void check_positive(const char* field, double value, double most) {
    if (!(std::isfinite(value) && value > 0 && value <= most)) {
      add("%s is %g, not a number above 0 and up to %g", field, value, most);
    }
  }
  void check_ratio(const char* field, double value, double expected) {
    if (!(std::fabs(value - expected) <= kRatioTolerance * expected)) {
      add("%s is %.4g, but p50_us and the floors give %.4g", field, value, expected);
    }
  }

  std::vector<std::string> take() { return std::move(lines_); }

 private:
  std::string where_;
  std::vector<std::string> lines_;
};

bool is_day(const std::string& text) {
  static const std::regex shape("(\\d{4})-(\\d{2})-(\\d{2})");
  std::smatch part;
  if (!std::regex_match(text, part, shape)) return false;
  const int month = std::stoi(part[2]), day = std::stoi(part[3]);
  return month >= 1 && month <= 12 && day >= 1 && day <= 31;
}

void check_head(Faults& faults, const ResultFile& file) {
  static const std::regex time_shape("T([01]\\d|2[0-3]):[0-5]\\d:[0-5]\\dZ");
  static const std::regex commit_shape("unknown|[0-9a-f]{7,40}(-dirty)?");
  const std::string day = file.date.substr(0, 10);
  const std::string rest = file.date.substr(day.size());
  if (!is_day(day) || !(rest.empty() || std::regex_match(rest, time_shape))) {
    faults.add("date is '%s', not yyyy-mm-dd or yyyy-mm-ddThh:mm:ssZ", file.date.c_str());
  }
  if (!std::regex_match(file.commit, commit_shape)) {
    faults.add("commit is '%s', not 7 to 40 hexadecimal digits", file.commit.c_str());
  }
  faults.check_text("command", file.command);
  for (const auto& [name, value] : file.env) {
    if (!is_recorded(name))
      faults.add(
          "env holds %s; only NEARLIGHT_*, NCCL_*, CUDA_*, NVSHMEM_* and TORCH_SYMM_MEM_* belong there",
          name.c_str());
  }
  for (const auto& [impl, text] : file.peers) {
    if (text.empty()) faults.add("peers.%s is empty", impl.c_str());
    if (std::none_of(file.rows.begin(), file.rows.end(), [&](const auto& row) { return row.impl == impl; }))
      faults.add("peers has %s, but no row is its", impl.c_str());
  }
}

void check_machine(Faults& faults, const ResultFile& file) {
  const Machine& machine = file.machine;
  const Floors& floors = file.floors;
  faults.check_text("machine.gpu", machine.gpu);
  faults.check_text("machine.link", machine.link);
  faults.check_text("machine.driver", machine.driver);
  faults.check_text("machine.cuda", machine.cuda);
  faults.check_text("machine.nccl", machine.nccl);
  faults.check_text("machine.cpu", machine.cpu);
  const bool has_gpu = machine.gpu != "none";
  if (machine.gpus < 0 || has_gpu != (machine.gpus > 0)) {
    faults.add("machine.gpus is %d with machine.gpu '%s'", machine.gpus, machine.gpu.c_str());
  }

  faults.check_positive("l2rtt_us", floors.l2rtt_us, 1e3);
  faults.check_positive("one_way_us", floors.one_way_us, 1e6);
  faults.check_positive("sol_us", floors.sol_us, 1e6);
  faults.check_positive("store_gbs", floors.store_gbs, 1e6);
  if (floors.sol_us < floors.one_way_us) {
    faults.add("sol_us %g is below one_way_us %g, which is part of it", floors.sol_us, floors.one_way_us);
  }
  const std::pair<const char*, const std::optional<double>&> launches[] = {
      {"launch_floor_us", floors.launch_floor_us}, {"launch_floor_pdl_us", floors.launch_floor_pdl_us}};
  for (const auto& [field, value] : launches) {
    if (value.has_value() != has_gpu) {
      faults.add("%s is %s with machine.gpu '%s'", field, value ? "a number" : "null", machine.gpu.c_str());
    }
    if (value) faults.check_positive(field, *value, 1e3);
  }
}

using Job = std::tuple<std::string, std::uint64_t, std::string, std::string, int, Mode, std::uint64_t, int>;
Job job_of(const ResultRow& row) {
  return {row.collective, row.bytes, row.dtype, row.op, row.ranks, row.mode, row.scratch, row.jobs};
}

void check_times(Faults& faults, const ResultRow& row) {
  struct Step {
    const char* field;
    double value;
  };
  std::vector<Step> steps = {
      {"min_us", row.min_us}, {"p50_us", row.p50_us}, {"p95_us", row.p95_us}, {"p99_us", row.p99_us}};
  if (row.p999_us) steps.push_back({"p999_us", *row.p999_us});
  steps.push_back({"max_us", row.max_us});
  for (std::size_t i = 0; i < steps.size(); ++i) {
    faults.check_positive(steps[i].field, steps[i].value, kLongestUs);
    if (i > 0 && steps[i].value < steps[i - 1].value) {
      faults.add("%s %g is below %s %g", steps[i].field, steps[i].value, steps[i - 1].field,
                 steps[i - 1].value);
    }
  }
  if (row.cpu_us && !(std::isfinite(*row.cpu_us) && *row.cpu_us >= 0 && *row.cpu_us <= kLongestUs)) {
    faults.add("cpu_us is %g, not a number from 0 to %g", *row.cpu_us, kLongestUs);
  }
  if (row.skew_us && !(std::isfinite(*row.skew_us) && *row.skew_us >= 0 && *row.skew_us <= kLongestUs)) {
    faults.add("skew_us is %g, not a number from 0 to %g", *row.skew_us, kLongestUs);
  }
  if (row.cost) {
    const Cost& cost = *row.cost;
    const bool ordered = cost.low_percent <= cost.percent && cost.percent <= cost.high_percent;
    if (!ordered || !std::isfinite(cost.low_percent) || !std::isfinite(cost.high_percent) ||
        cost.low_percent <= -100) {
      faults.add("cost_percent is %g, not between the quartiles %g and %g, above -100", cost.percent,
                 cost.low_percent, cost.high_percent);
    }
    if (row.impl == kOwnImpl) faults.add("cost_percent stands in the row of what it is compared with");
  }
  if (row.samples == 0) faults.add("samples is 0");
  if (row.p999_us.has_value() != (row.samples >= trace::kSamplesForP999)) {
    faults.add("p999_us is %s with %llu samples; it is a number from %zu samples on, null below",
               row.p999_us ? "a number" : "null", static_cast<unsigned long long>(row.samples),
               trace::kSamplesForP999);
  }
}

// The row must tell the same as what was asked for.
void check_forced(Faults& faults, const ResultRow& row) {
  static const std::regex shape("(algorithm|protocol|grid|threads)=([a-z0-9_]+)");
  std::string rest = row.forced;
  while (!rest.empty()) {
    const std::string one = rest.substr(0, rest.find(','));
    rest.erase(0, one.size() + 1);
    std::smatch part;
    if (!std::regex_match(one, part, shape)) {
      faults.add("forced is '%s', not algorithm=NAME,protocol=NAME,grid=N,threads=N or some of them",
                 row.forced.c_str());
      return;
    }
    const std::string taken = part[1] == "algorithm"  ? row.algorithm
                              : part[1] == "protocol" ? row.protocol
                              : part[1] == "grid"     ? std::to_string(row.grid)
                                                      : part[2].str();
    if (part[2] != taken) faults.add("forced has %s, but the row says %s", one.c_str(), taken.c_str());
  }
}

void check_row(Faults& faults, const ResultFile& file, const ResultRow& row, const std::set<Job>& own) {
  const bool known = contains(kCollectives, row.collective);
  if (!known) faults.add("collective '%s' is not known", row.collective.c_str());
  if (!contains(kDtypes, row.dtype)) faults.add("dtype '%s' is not known", row.dtype.c_str());
  if (!contains(kOps, row.op)) {
    faults.add("op '%s' is not known", row.op.c_str());
  } else if (known && reduces(row.collective) == (row.op == "none")) {
    faults.add("op is '%s' with collective %s", row.op.c_str(), row.collective.c_str());
  }
  if (row.ranks < 1) faults.add("ranks is %d", row.ranks);
  if (row.chain < 1) faults.add("chain is %d", row.chain);
  if (row.jobs < 1) faults.add("jobs is %d", row.jobs);
  if (row.grid < 0) faults.add("grid is %d", row.grid);
  faults.check_text("impl", row.impl);
  if (row.impl == kOwnImpl) {
    faults.check_text("algorithm", row.algorithm);
    faults.check_text("protocol", row.protocol);
  } else if (!own.contains(job_of(row))) {
    faults.add(
        "no row of nearlight with the same collective, bytes, dtype, op, ranks, mode, scratch and jobs "
        "beside it");
  }
  check_forced(faults, row);
  check_times(faults, row);

  if (!(file.floors.sol_us > 0 && file.floors.store_gbs > 0 && row.p50_us > 0 && row.ranks >= 1)) return;
  faults.check_ratio("ratio_sol", row.ratio_sol, row.p50_us / file.floors.sol_us);
  if (row.mode == Mode::eager && file.machine.gpus > 0) {
    // The eager launch floor is not part of the file: only the bound can be checked.
    const double most =
        row.p50_us / limit_us(file.floors, row.collective, row.bytes, row.ranks, Mode::kernel);
    if (!(row.ratio_limit > 0 && row.ratio_limit <= most * (1 + kRatioTolerance))) {
      faults.add("ratio_limit is %g, not above 0 and up to %g, its value without a launch", row.ratio_limit,
                 most);
    }
  } else {
    faults.check_ratio("ratio_limit", row.ratio_limit,
                       row.p50_us / limit_us(file.floors, row.collective, row.bytes, row.ranks, row.mode));
  }
}

}  // namespace

std::vector<std::string> find_faults(const ResultFile& file) {
  Faults faults;
  check_head(faults, file);
  check_machine(faults, file);
  std::set<Job> own;
  for (const ResultRow& row : file.rows) {
    if (row.impl == kOwnImpl) own.insert(job_of(row));
  }
  for (std::size_t i = 0; i < file.rows.size(); ++i) {
    const ResultRow& row = file.rows[i];
    faults.set_place("row " + std::to_string(i) + " (" + row.impl + " " + row.collective + " " +
                     std::to_string(row.bytes) + " B " + name_of(row.mode) + "): ");
    check_row(faults, file, row, own);
  }
  return faults.take();
}

std::vector<std::string> find_committed_faults(std::string_view name, const ResultFile& file) {
  static const std::regex name_shape("(\\d{4}-\\d{2}-\\d{2})-[A-Za-z0-9_.]+-[A-Za-z0-9_.-]+\\.json");
  std::vector<std::string> lines = find_faults(file);
  Faults faults;
  const std::string text(name);
  std::smatch part;
  if (!std::regex_match(text, part, name_shape)) {
    faults.add("file name '%s' is not <yyyy-mm-dd>-<machine>-<topic>.json", text.c_str());
  } else if (part[1] != file.date.substr(0, 10)) {
    faults.add("file name '%s' has another day than date '%s'", text.c_str(), file.date.c_str());
  }
  if (file.commit == "unknown" || file.commit.ends_with("-dirty")) {
    faults.add("commit is '%s': results are kept of a committed state only", file.commit.c_str());
  }
  for (std::size_t i = 0; i < file.rows.size(); ++i) {
    if (file.rows[i].impl == kOwnImpl && file.rows[i].wrong != 0) {
      faults.add("row %zu: wrong is %llu", i, static_cast<unsigned long long>(file.rows[i].wrong));
    }
  }
  for (std::string& line : faults.take()) lines.push_back(std::move(line));
  return lines;
}

}  // namespace nearlight::cli
