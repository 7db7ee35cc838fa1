// What `nearlight bench` was asked to do. Letters and defaults of nccl-tests where it has them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "algorithm/kinds.hpp"
#include "base/status.hpp"
#include "base/types.hpp"
#include "cli/bench/engine.hpp"
#include "cli/results.hpp"
#include "cli/workload.hpp"

namespace nearlight::bench {

// cuda: ranks are threads, memory from CUDA alone, several ranks on a GPU if need be. nccl: attached to NCCL
// communicators.
enum class Backend { best, host, cuda, nccl };
const char* name_of(Backend backend);
std::optional<Backend> parse_backend(std::string_view text);

struct BenchOptions {
  std::string collective = "all_reduce";
  // Sizes: -b, -e, and -f or -i. step_factor 0: step_bytes is used.
  std::size_t min_bytes = 8;
  std::size_t max_bytes = 1 << 20;
  std::uint64_t step_factor = 2;
  std::size_t step_bytes = 0;
  std::string workload;   // instead of them; "" for none
  std::optional<int> tp;  // ranks the workload is split over, and so the ranks of this run

  std::optional<std::size_t> samples;  // -n; unset: 1000, with --percentiles 10 000
  std::size_t warmup = 5;              // -w, per turn
  std::size_t rounds = 10;             // turns
  std::optional<int> chain;            // -m; unset: by mode and backend
  std::optional<DataType> type;        // -d; unset: f32, or the workload's
  ReduceOp op = ReduceOp::sum;         // -o
  bool check = true;                   // -c
  bool in_place = true;                // --in-place

  Backend backend = Backend::best;
  std::optional<int> gpus;             // -g
  std::optional<int> threads_per_gpu;  // -t: ranks on each GPU
  std::optional<int> ranks;            // instead of -g and -t
  std::optional<cli::Mode> mode;
  std::vector<std::string> against;

  std::vector<algorithm::Protocol> protocols;  // forced: one, or several beside the route's choice
  std::uint32_t grid = 0;
  std::uint32_t threads = 0;
  std::optional<std::uint32_t> sm;  // kernel mode: the SM that works; unset: where the GPU puts it
  int offsets = 0;                  // kernel mode: how many slot offsets; 0: one run as it comes
  bool percentiles = false;
  std::string json;                    // result file to write; "" for none
  int timeout_ms = 20'000;             // of one wait inside an operation
  std::vector<std::string> arguments;  // as typed, after the program's name
};

inline constexpr int kMaxRanks = 8;
inline constexpr int kMaxOffsets = 1024;

// "128", "16K", "1M", "2G": K, M, G are powers of 1024. The error does not name the flag.
Result<std::size_t> parse_size(std::string_view text);
// "ll,sentinel". Unknown names are an error that lists the known ones.
Result<std::vector<algorithm::Protocol>> parse_protocols(std::string_view text);
// "nccl,nccl_sym" or "openmpi". Unknown names are an error that lists the known ones.
Result<std::vector<std::string>> parse_against(std::string_view text);

// Contradictions between options. Errors name the flag.
Status validate(const BenchOptions& options);

// The sizes to run, in order, each a whole number of elements (rounded down, as nccl-tests does; at least
// one).
Result<std::vector<Case>> cases_of(const BenchOptions& options);

bool has_peer(const BenchOptions& options, std::string_view peer);
// The ranks asked for by --ranks, -g and -t, or --tp.
int ranks_of(const BenchOptions& options, int otherwise);

// What depends on the backend that was chosen.
cli::Mode mode_of(const BenchOptions& options, Backend backend);
Plan plan_of(const BenchOptions& options, Backend backend);

}  // namespace nearlight::bench
