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
#include "cli/bench/paired.hpp"
#include "cli/results.hpp"
#include "cli/workload.hpp"
#include "runtime/communicator.hpp"

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

  std::optional<std::size_t> samples;  // -n; unset: 1000, with --percentiles 10 000, with --paired 4000
  std::size_t warmup = 5;              // -w, per turn
  std::optional<std::size_t> rounds;   // turns; unset: 10, with --paired 40
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
  std::size_t fused = 0;     // elements of a row that is normalised after its sum; 0: none is
  std::uint32_t spread = 0;  // with it: CTAs that share a row; 0: from the route
  // Columns a rank of a matrix whose product is summed up, or rows of one by which gathered vectors are
  // multiplied; 0: there is none.
  std::size_t gemv = 0;
  std::size_t tokens = 0;  // with it: vectors; 0: 1
  Paired paired = Paired::none;

  // Forced: one of each, or several, whose combinations run beside the route's choice.
  std::vector<algorithm::Algorithm> algorithms;
  std::vector<algorithm::Protocol> protocols;
  std::optional<std::uint32_t> grid;
  std::optional<std::uint32_t> threads;
  std::vector<std::size_t>
      scratch;  // see with_scratch(); a set of rows each. Empty: the communicator's default
  std::optional<std::uint32_t> sm;  // kernel mode: the SM that works; unset: where the GPU puts it
  int offsets = 0;                  // kernel and graph mode: how many slot offsets; 0: one run as it comes
  bool percentiles = false;
  std::string json;                    // result file to write; "" for none
  std::string compare;                 // result file to compare with; "" for none
  int jobs = 1;                        // communicators that work at the same time, 1 or 2
  int skew_us = 0;                     // by which the last rank comes late to every start
  int timeout_ms = 20'000;             // of one wait inside an operation
  std::vector<std::string> arguments;  // as typed, after the program's name
};

// Algorithm and protocol that calls are told to take; unset ones come from the route.
struct Forced {
  std::optional<algorithm::Algorithm> algorithm;
  std::optional<algorithm::Protocol> protocol;
};

inline constexpr int kMaxRanks = 8;
inline constexpr int kMaxOffsets = 1024;
inline constexpr int kMaxJobs = 2;
inline constexpr int kMaxSkewUs = 1'000'000;

// "128", "16K", "1M", "2G": K, M, G are powers of 1024. The error does not name the flag.
Result<std::size_t> parse_size(std::string_view text);
// "one_shot" and "ll,sentinel"; the names are those of algorithm/kinds.hpp. Unknown names are an error that
// lists the known ones.
Result<std::vector<algorithm::Algorithm>> parse_algorithms(std::string_view text);
Result<std::vector<algorithm::Protocol>> parse_protocols(std::string_view text);
// All of them, for help and errors: "ll, simple, sentinel".
std::string algorithm_names();
std::string protocol_names();
// "16K,64K": sizes that with_scratch() can make.
Result<std::vector<std::size_t>> parse_scratch(std::string_view text);
// "nccl,nccl_sym", "torch_symm_mem,nvshmem" or "openmpi". Unknown names are an error that lists the known
// ones.
Result<std::vector<std::string>> parse_against(std::string_view text);

// Contradictions between options. Errors name the flag.
Status validate(const BenchOptions& options);

// The sizes to run, in order, each a whole number of elements (rounded down, as nccl-tests does; at least
// one).
Result<std::vector<Case>> cases_of(const BenchOptions& options);

// The combinations of `algorithms` and `protocols`; empty when nothing is forced.
std::vector<Forced> forced_of(const BenchOptions& options);

// Room for `bytes` of payload of each other rank in a region and bank, for every protocol alike: what a CTA
// (on a CPU: a rank) takes in before a round ends. A multiple of kScratchStep from kScratchStep to
// kMaxScratch; 0: the communicator's default, which differs by protocol.
// Lines of LL128 a region where it is asked for.
inline constexpr std::uint32_t kForcedLines = 256;
// Of one wait inside an operation.
std::chrono::milliseconds timeout_of(const runtime::Options& options);
// With what the algorithms and protocols that are asked for need of a communicator.
runtime::Options with_forced(runtime::Options options, const BenchOptions& asked);
runtime::Options with_scratch(runtime::Options options, std::size_t bytes);
inline constexpr std::size_t kScratchStep = 512;  // whole warps of 16-byte packets
inline constexpr std::size_t kMaxScratch = std::size_t{8} << 20;

// What is to run; the error lists what is known.
Result<Collective> collective_of(const BenchOptions& options);
// "all_reduce, all_gather, ...", for help and errors.
std::string collective_names();
bool has_peer(const BenchOptions& options, std::string_view peer);
// The ranks asked for by --ranks, -g and -t, or --tp.
int ranks_of(const BenchOptions& options, int otherwise);

// What depends on the backend that was chosen.
cli::Mode mode_of(const BenchOptions& options, Backend backend);
Plan plan_of(const BenchOptions& options, Backend backend);

}  // namespace nearlight::bench
