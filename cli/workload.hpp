// Workloads: the all-reduces of one decode step of a published model, as small JSON files (bench/workloads/,
// also built in).
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.hpp"
#include "base/types.hpp"

namespace nearlight::cli {

struct Workload {
  std::string name;     // "llama-3.1-70b"
  std::string source;   // where the numbers come from, and how the count is derived
  int hidden_size = 0;  // elements of one token's activation
  int layers = 0;
  DataType dtype = DataType::bf16;
  int all_reduces_per_step = 0;
  std::vector<int> tp;     // ranks that tensor parallelism is used with
  std::vector<int> batch;  // tokens of one decode step
};

// The all-reduces of one decode step at one batch size: all have the same size.
struct WorkloadSize {
  int batch = 0;
  std::size_t count = 0;  // elements: hidden_size * batch
  std::size_t bytes = 0;
  int per_step = 0;  // how many of them one step does
};

// Names of the built-in workloads, sorted.
std::vector<std::string> built_in_workloads();

// A built-in name, else a file's path. An unknown name lists the built-in ones; a bad file's error names the
// file and the field.
Result<Workload> load_workload(const std::string& name_or_file);
// `origin` leads the error text.
Result<Workload> parse_workload(std::string_view json, std::string_view origin);

// One entry a batch size, in the file's order.
std::vector<WorkloadSize> sizes_of(const Workload& workload);

}  // namespace nearlight::cli
