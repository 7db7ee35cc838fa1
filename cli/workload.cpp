#include "cli/workload.hpp"

#include <algorithm>
#include <cctype>
#include <utility>

#include "cli/built_in_workloads.hpp"
#include "cli/json_reader.hpp"
#include "cli/text_file.hpp"

namespace nearlight::cli {

namespace {

// Far above any model, far below an overflow.
constexpr int kLargestHidden = 1 << 20;
constexpr int kMostLayers = 1 << 14;
constexpr int kMostPerStep = 1 << 20;
constexpr int kMostRanks = 1 << 14;
constexpr int kLargestBatch = 1 << 20;

bool is_name(const std::string& text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](unsigned char c) {
    return std::isalnum(c) || c == '.' || c == '-' || c == '_';
  });
}

Status check_range(const JsonReader& members, const char* field, int value, int most) {
  if (value >= 1 && value <= most) return {};
  return members.fault(field, "is " + std::to_string(value) + ", not from 1 to " + std::to_string(most));
}

// Not empty, ascending, without repeats.
Status check_list(const JsonReader& members, const char* field, const std::vector<int>& list, int most) {
  if (list.empty()) return members.fault(field, "is empty");
  for (std::size_t i = 0; i < list.size(); ++i) {
    NL_TRY(check_range(members, field, list[i], most));
    if (i > 0 && list[i] <= list[i - 1]) return members.fault(field, "is not ascending");
  }
  return {};
}

}  // namespace

std::vector<std::string> built_in_workloads() {
  std::vector<std::string> names;
  for (const BuiltInWorkload& built_in : kBuiltInWorkloads) names.emplace_back(built_in.name);
  std::sort(names.begin(), names.end());
  return names;
}

Result<Workload> load_workload(const std::string& name_or_file) {
  for (const BuiltInWorkload& built_in : kBuiltInWorkloads) {
    if (built_in.name == name_or_file)
      return parse_workload(built_in.json, "built-in workload " + name_or_file);
  }
  Result<std::string> text = read_text_file(name_or_file);
  if (text.ok()) return parse_workload(*text, name_or_file);
  std::string known;
  for (const std::string& name : built_in_workloads()) known += (known.empty() ? "" : ", ") + name;
  return failure(Code::invalid_argument,
                 "workload '%s' is neither built in (%s) nor a file that can be read (%s)",
                 name_or_file.c_str(), known.c_str(), text.status().text().c_str());
}

Result<Workload> parse_workload(std::string_view json, std::string_view origin) {
  NL_TRY_ASSIGN(JsonReader members, JsonReader::parse(json, origin));
  Workload workload;
  std::string dtype;
  members.take("name", workload.name);
  members.take("source", workload.source);
  members.take("hidden_size", workload.hidden_size);
  members.take("layers", workload.layers);
  members.take("dtype", dtype);
  members.take("all_reduces_per_step", workload.all_reduces_per_step);
  members.take("tp", workload.tp);
  members.take("batch", workload.batch);
  NL_TRY(members.finish());

  if (!is_name(workload.name))
    return members.fault("name", "is '" + workload.name + "', not of letters, digits, . - _");
  if (workload.source.empty()) return members.fault("source", "is empty");
  const std::optional<DataType> type = parse_data_type(dtype);
  if (!type) return members.fault("dtype", "is '" + dtype + "', none of i32, f32, bf16");
  workload.dtype = *type;
  NL_TRY(check_range(members, "hidden_size", workload.hidden_size, kLargestHidden));
  NL_TRY(check_range(members, "layers", workload.layers, kMostLayers));
  NL_TRY(check_range(members, "all_reduces_per_step", workload.all_reduces_per_step, kMostPerStep));
  NL_TRY(check_list(members, "tp", workload.tp, kMostRanks));
  NL_TRY(check_list(members, "batch", workload.batch, kLargestBatch));
  return workload;
}

std::vector<WorkloadSize> sizes_of(const Workload& workload) {
  std::vector<WorkloadSize> sizes;
  for (const int batch : workload.batch) {
    WorkloadSize size;
    size.batch = batch;
    size.count = static_cast<std::size_t>(workload.hidden_size) * static_cast<std::size_t>(batch);
    size.bytes = size.count * size_of(workload.dtype);
    size.per_step = workload.all_reduces_per_step;
    sizes.push_back(size);
  }
  return sizes;
}

}  // namespace nearlight::cli
