#include "cli/bench/options.hpp"

#include <algorithm>
#include <charconv>
#include <cinttypes>
#include <iterator>
#include <limits>

#include "cli/bench/without_limits.hpp"
#include "cli/peers/nvshmem_api.hpp"

namespace nearlight::bench {

namespace {
// The samples of all ranks are held in memory.
constexpr std::uint64_t kMostSamples = 10'000'000, kMostFactor = 1'048'576;

constexpr std::string_view kPeers[] = {"nccl", "nccl_sym", "torch_symm_mem", "nvshmem", "openmpi"};

// What was typed as a negative number is a very large one here.
Status check_number(const char* flag, std::uint64_t number, std::uint64_t lowest, std::uint64_t highest) {
  if (number >= lowest && number <= highest) return {};
  return failure(Code::invalid_argument, "%s must be from %" PRIu64 " to %" PRIu64, flag, lowest, highest);
}

// The entries between the commas, each once; none is an error, as is one that `parse` refuses.
template <class Entry, class Parse>
Result<std::vector<Entry>> parse_list(std::string_view text, Parse parse) {
  std::vector<Entry> entries;
  for (bool more = true; more;) {
    const std::size_t comma = text.find(',');
    more = comma != std::string_view::npos;
    const std::string_view one = text.substr(0, comma);
    if (one.empty()) return failure(Code::invalid_argument, "nothing stands between two commas, or at all");
    NL_TRY_ASSIGN(Entry entry, parse(one));
    if (std::find(entries.begin(), entries.end(), entry) == entries.end())
      entries.push_back(std::move(entry));
    if (more) text.remove_prefix(comma + 1);
  }
  return entries;
}

template <class Kinds>
std::string names_of(const Kinds& kinds) {
  std::string names;
  for (const auto kind : kinds) names += (names.empty() ? "" : ", ") + std::string(algorithm::name_of(kind));
  return names;
}

template <class Kind, std::size_t kCount>
Result<Kind> find_name(const Kind (&kinds)[kCount], const char* what, std::string_view name) {
  for (const Kind kind : kinds) {
    if (name == algorithm::name_of(kind)) return kind;
  }
  return failure(Code::invalid_argument, "there is no %s '%.*s'; known: %s", what,
                 static_cast<int>(name.size()), name.data(), names_of(kinds).c_str());
}

bool mpi_has(DataType type) { return is_integer(type) || type == DataType::f32 || type == DataType::f64; }
}  // namespace

const char* name_of(Backend backend) {
  switch (backend) {
    case Backend::best:
      return "best";
    case Backend::host:
      return "host";
    case Backend::cuda:
      return "cuda";
    case Backend::nccl:
      return "nccl";
  }
  return "invalid";
}

std::optional<Backend> parse_backend(std::string_view text) {
  for (const Backend backend : {Backend::best, Backend::host, Backend::cuda, Backend::nccl}) {
    if (text == name_of(backend)) return backend;
  }
  return std::nullopt;
}

Result<std::size_t> parse_size(std::string_view text) {
  std::uint64_t number = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc() || end - stop > 1) {
    return failure(Code::invalid_argument, "'%.*s' is not a size such as 128, 16K, 1M or 2G",
                   static_cast<int>(text.size()), text.data());
  }
  int shift = 0;
  if (stop != end) {
    switch (*stop) {
      case 'k':
      case 'K':
        shift = 10;
        break;
      case 'm':
      case 'M':
        shift = 20;
        break;
      case 'g':
      case 'G':
        shift = 30;
        break;
      default:
        return failure(Code::invalid_argument, "'%.*s' ends in '%c'; known are K, M and G (powers of 1024)",
                       static_cast<int>(text.size()), text.data(), *stop);
    }
  }
  if (number > std::numeric_limits<std::uint64_t>::max() >> (shift + 1)) {
    return failure(Code::invalid_argument, "'%.*s' is too large", static_cast<int>(text.size()), text.data());
  }
  return static_cast<std::size_t>(number << shift);
}

Result<std::vector<std::string>> parse_against(std::string_view text) {
  return parse_list<std::string>(text, [](std::string_view name) -> Result<std::string> {
    if (std::find(std::begin(kPeers), std::end(kPeers), name) != std::end(kPeers)) return std::string(name);
    return failure(Code::invalid_argument,
                   "there is no peer '%.*s'; known are nccl, nccl_sym, torch_symm_mem, nvshmem and "
                   "openmpi",
                   static_cast<int>(name.size()), name.data());
  });
}

std::string algorithm_names() { return names_of(algorithm::kAlgorithmsAndNccl); }
std::string protocol_names() { return names_of(algorithm::kProtocols); }

Result<std::vector<algorithm::Algorithm>> parse_algorithms(std::string_view text) {
  return parse_list<algorithm::Algorithm>(text, [](std::string_view name) {
    return find_name(algorithm::kAlgorithmsAndNccl, "algorithm", name);
  });
}

Result<std::vector<algorithm::Protocol>> parse_protocols(std::string_view text) {
  return parse_list<algorithm::Protocol>(
      text, [](std::string_view name) { return find_name(algorithm::kProtocols, "protocol", name); });
}

Result<std::vector<std::size_t>> parse_scratch(std::string_view text) {
  return parse_list<std::size_t>(text, [](std::string_view one) -> Result<std::size_t> {
    NL_TRY_ASSIGN(const std::size_t bytes, parse_size(one));
    if (bytes % kScratchStep != 0 || bytes == 0 || bytes > kMaxScratch) {
      return failure(Code::invalid_argument, "'%.*s' is not a multiple of %zu from %zu to %zu",
                     static_cast<int>(one.size()), one.data(), kScratchStep, kScratchStep, kMaxScratch);
    }
    return bytes;
  });
}

std::vector<Forced> forced_of(const BenchOptions& options) {
  std::vector<Forced> forced;
  if (options.algorithms.empty()) {
    for (const auto protocol : options.protocols) forced.push_back({std::nullopt, protocol});
    return forced;
  }
  for (const auto algorithm : options.algorithms) {
    if (options.protocols.empty()) forced.push_back({algorithm, std::nullopt});
    for (const auto protocol : options.protocols) forced.push_back({algorithm, protocol});
  }
  return forced;
}

std::chrono::milliseconds timeout_of(const runtime::Options& options) {
  return options.timeout.value_or(std::chrono::milliseconds(BenchOptions().timeout_ms));
}

runtime::Options with_forced(runtime::Options options, const BenchOptions& asked) {
  const auto& algorithms = asked.algorithms;
  const auto& protocols = asked.protocols;
  const bool atomic = std::find(algorithms.begin(), algorithms.end(),
                                algorithm::Algorithm::two_shot_atomic) != algorithms.end();
  if (atomic) options.deterministic = false;
  if (atomic ||
      std::find(protocols.begin(), protocols.end(), algorithm::Protocol::ll128) != protocols.end()) {
    options.lines = kForcedLines;
  }
  return options;
}

runtime::Options with_scratch(runtime::Options options, std::size_t bytes) {
  options.slots = static_cast<std::uint32_t>(bytes / 8);
  options.packets = static_cast<std::uint32_t>(bytes / 16);
  options.chunk_bytes = static_cast<std::uint32_t>(bytes);
  if (options.lines != 0) options.lines = static_cast<std::uint32_t>((bytes + 479) / 480 * 4);
  return options;
}

bool has_peer(const BenchOptions& options, std::string_view peer) {
  return std::find(options.against.begin(), options.against.end(), peer) != options.against.end();
}

namespace {
bool any_gpu_peer(const BenchOptions& options) {
  return std::any_of(options.against.begin(), options.against.end(),
                     [](const std::string& peer) { return peer != "openmpi"; });
}

Status validate_fused(const BenchOptions& options, Collective collective) {
  const auto bad = [](const char* why) { return failure(Code::invalid_argument, "--fused: %s", why); };
  if (collective != Collective::all_reduce || options.op != ReduceOp::sum) return bad("for all_reduce, sum");
  if (options.type != DataType::bf16 && options.type != DataType::f16) return bad("of bfloat16 or half (-d)");
  if (options.backend == Backend::host || options.mode == cli::Mode::kernel)
    return bad("on GPUs, in modes graph and eager");
  if (options.jobs > 1 || options.paired != Paired::none || !options.workload.empty() ||
      options.algorithms.size() > 1 || options.protocols.size() > 1)
    return bad("without --jobs, --paired and --workload, and with one --algorithm and --protocol at most");
  if (options.fused < runtime::kLeastHidden || options.fused > runtime::kMostHidden ||
      options.fused % runtime::kHiddenStep != 0)
    return bad("a multiple of 8 from 1024 to 16384");
  return {};
}

Status validate_gemv(const BenchOptions& options, Collective collective) {
  const auto bad = [](const char* why) { return failure(Code::invalid_argument, "--gemv: %s", why); };
  const bool gathers = collective == Collective::all_gather;
  if (!gathers && (collective != Collective::all_reduce || options.op != ReduceOp::sum))
    return bad("for all_reduce, sum, and all_gather");
  if (options.type != DataType::bf16 && options.type != DataType::f16) return bad("of bfloat16 or half (-d)");
  if (options.backend == Backend::host || options.mode == cli::Mode::kernel)
    return bad("on GPUs, in modes graph and eager");
  if (options.jobs > 1 || options.paired != Paired::none || options.fused != 0 || !options.workload.empty() ||
      options.algorithms.size() > 1 || options.protocols.size() > 1)
    return bad(
        "without --jobs, --paired, --fused and --workload, and with one --algorithm and --protocol at most");
  if (options.gemv > (gathers ? runtime::kMostGemvOut : runtime::kMostGemvIn) ||
      options.gemv % runtime::kGemvStep != 0)
    return bad(gathers ? "a multiple of 8 up to 1048576" : "a multiple of 8 up to 65536");
  if (options.tokens > runtime::kMostGemvTokens || (!gathers && options.tokens > options.gemv))
    return failure(Code::invalid_argument, "--tokens: at most 16%s",
                   gathers ? "" : ", and no more than --gemv");
  return {};
}

Status validate_pair(const BenchOptions& options, Collective collective) {
  const char* const what = name_of(options.paired);
  const auto bad = [what](const char* why) {
    return failure(Code::invalid_argument, "--paired %s: %s", what, why);
  };
  constexpr Collective kTraced[] = {Collective::all_gather, Collective::broadcast, Collective::all_to_all,
                                    Collective::send_recv};  // beside all_reduce, whatever the type
  const bool sums = collective == Collective::all_reduce;
  if (options.paired == Paired::deadline && !sums) return bad("for all_reduce alone");
  if (!sums && std::find(std::begin(kTraced), std::end(kTraced), collective) == std::end(kTraced))
    return bad("for all_reduce, all_gather, broadcast, all_to_all and send_recv");
  const DataType type = options.type.value_or(DataType::f32);
  if (sums && !has_code_without_limits(type, options.op))
    return failure(Code::invalid_argument,
                   "--paired %s: not for -d %s -o %s; for float and bfloat16 with sum", what, name_of(type),
                   name_of(options.op));
  if (!options.against.empty()) return bad("runs without --against");
  if (options.jobs > 1 || options.offsets > 0) return bad("runs without --jobs and --offsets");
  if (options.algorithms.size() > 1 || options.protocols.size() > 1)
    return bad("takes one --algorithm and one --protocol");
  if (!options.mode || options.backend == Backend::host) return {};
  if (options.paired == Paired::trace && *options.mode == cli::Mode::kernel)
    return bad("operations in mode kernel are not traced (--mode graph or eager)");
  if (options.paired == Paired::deadline && *options.mode != cli::Mode::kernel)
    return bad("on a GPU in --mode kernel");
  return {};
}

}  // namespace

std::string collective_names() {
  std::string names;
  for (const Collective collective : kCollectives) {
    if (collective == Collective::barrier || is_uneven(collective)) continue;
    names += (names.empty() ? "" : ", ") + std::string(name_of(collective));
  }
  return names;
}

Result<Collective> collective_of(const BenchOptions& options) {
  for (const Collective collective : kCollectives) {
    if (collective == Collective::barrier || is_uneven(collective)) continue;
    if (options.collective == name_of(collective)) return collective;
  }
  return failure(Code::invalid_argument, "there is no benchmark '%s'; known: %s", options.collective.c_str(),
                 collective_names().c_str());
}

Status validate(const BenchOptions& options) {
  const auto bad = [](const char* text) { return Status(Code::invalid_argument, text); };
  const auto has = [&](std::string_view peer) { return has_peer(options, peer); };
  NL_TRY_ASSIGN(const Collective collective, collective_of(options));
  if (collective != Collective::all_reduce) {
    if (options.mode == cli::Mode::kernel || options.offsets > 0)
      return bad("--mode kernel and --offsets: all_reduce alone has operations inside a kernel");
    if (!options.workload.empty()) return bad("--workload: the workloads are all_reduce's");
    for (const std::string& peer : options.against) {
      if (peer == "nccl" || peer == "nccl_sym") continue;
      return failure(Code::invalid_argument, "--against %s: measured for all_reduce alone", peer.c_str());
    }
  }
  if (options.min_bytes == 0) return bad("-b must be at least 1");
  if (options.min_bytes > options.max_bytes) return bad("-b is larger than -e");
  if (options.step_bytes == 0) NL_TRY(check_number("-f", options.step_factor, 2, kMostFactor));
  NL_TRY(check_number("-n (or -G)", options.samples.value_or(1), 1, kMostSamples));
  NL_TRY(check_number("-w", options.warmup, 0, kMostSamples));
  NL_TRY(check_number("--rounds", options.rounds.value_or(1), 1, kMostSamples));
  if (options.chain && (*options.chain < 1 || *options.chain > 100'000))
    return bad("-m must be from 1 to 100000");
  if (options.gpus && *options.gpus < 1) return bad("-g must be at least 1");
  if (options.threads_per_gpu && *options.threads_per_gpu < 1) return bad("-t must be at least 1");
  if (options.ranks && (options.gpus || options.threads_per_gpu)) {
    return bad("--ranks cannot stand together with -g or -t, whose product it is");
  }
  const int ranks = ranks_of(options, 1);
  if (options.tp && options.workload.empty()) return bad("--tp says nothing without --workload");
  if (options.tp && *options.tp != ranks) return bad("--tp differs from --ranks (or -g times -t)");
  if (ranks < 1 || ranks > kMaxRanks) return bad("--ranks (or --tp, or -g times -t) must be from 1 to 8");
  if (!options.check && !options.json.empty()) return bad("-c 0: --json keeps checked results only");
  if (!options.check && !options.compare.empty()) return bad("-c 0: --compare takes checked results only");
  if (options.timeout_ms < 1) return bad("--timeout must be at least 1 ms");
  if (options.offsets < 0 || options.offsets > kMaxOffsets) return bad("--offsets must be from 0 to 1024");
  if (options.offsets > 0 && options.mode == cli::Mode::eager)
    return bad("--offsets needs --mode kernel or graph");
  if (options.sm && options.mode != cli::Mode::kernel) return bad("--sm needs --mode kernel");
  if (options.mode == cli::Mode::kernel) {
    if (!options.against.empty())
      return bad("--against: no peer has operations inside a kernel (--mode kernel)");
    for (const auto protocol : {algorithm::Protocol::sentinel, algorithm::Protocol::ll128}) {
      const auto& asked = options.protocols;
      if (std::find(asked.begin(), asked.end(), protocol) == asked.end()) continue;
      return failure(Code::invalid_argument, "--mode kernel: %s has no operations inside a kernel",
                     name_of(protocol));
    }
    if (const DataType type = options.type.value_or(DataType::f32);
        !algorithm::has_own_code(type, options.op)) {
      return failure(Code::invalid_argument, "--mode kernel: not for -d %s -o %s; there are kernels for %s",
                     name_of(type), name_of(options.op), algorithm::kOwnCode);
    }
  }
  if (options.paired != Paired::none) NL_TRY(validate_pair(options, collective));
  if (options.fused != 0) NL_TRY(validate_fused(options, collective));
  if (options.spread != 0 && options.fused == 0) return bad("--spread goes with --fused");
  if (options.gemv != 0) NL_TRY(validate_gemv(options, collective));
  if (options.tokens != 0 && options.gemv == 0) return bad("--tokens goes with --gemv");
  if (options.jobs < 1 || options.jobs > kMaxJobs) return bad("--jobs must be 1 or 2");
  if (options.jobs > 1) {
    if (!options.against.empty())
      return bad("--jobs 2 runs without --against: the second job is nearlight's");
    if (options.backend != Backend::host && options.mode && *options.mode != cli::Mode::graph)
      return bad("--jobs 2 needs --mode graph on a GPU");
  }
  if (options.skew_us < 0 || options.skew_us > kMaxSkewUs)
    return bad("--skew must be from 0 to 1000000 microseconds");
  if (options.algorithms.size() > 1 && options.offsets > 0) return bad("--offsets takes one --algorithm");
  if (options.protocols.size() > 1 && options.offsets > 0) return bad("--offsets takes one --protocol");
  if (!options.scratch.empty() && options.offsets > 0) return bad("--scratch and --offsets: one of them");
  if (options.grid && *options.grid < 1) return bad("--grid must be at least 1");
  if (options.threads && (*options.threads < 32 || *options.threads % 32 != 0)) {
    return failure(Code::invalid_argument, "--threads is %u, not a multiple of 32", *options.threads);
  }
  if (options.backend == Backend::host) {
    if (options.algorithms.size() > 1) return bad("--backend host takes one --algorithm");
    if (options.protocols.size() > 1) return bad("--backend host takes one --protocol");
    if (options.mode && *options.mode != cli::Mode::eager)
      return bad("--mode: --backend host knows eager only");
    if (any_gpu_peer(options)) {
      return bad("--against: nccl, nccl_sym, torch_symm_mem and nvshmem need GPUs, --backend host has none");
    }
    if (options.grid || options.threads) return bad("--grid and --threads need a GPU backend");
  }
  if (has("openmpi")) {
    if (options.backend == Backend::cuda || options.backend == Backend::nccl) {
      return bad("--against openmpi: a peer of --backend host");
    }
    if (any_gpu_peer(options)) return bad("--against: openmpi runs on the CPU, the other peers on GPUs");
    if (options.type && !mpi_has(*options.type)) {
      return failure(Code::invalid_argument,
                     "-d %s: MPI has no such type, so --against openmpi cannot run it",
                     name_of(*options.type));
    }
    if (options.op == ReduceOp::avg || options.op == ReduceOp::premul_sum) {
      return failure(Code::invalid_argument,
                     "-o %s: MPI has no such operator, so --against openmpi cannot run it",
                     name_of(options.op));
    }
  }
  if (any_gpu_peer(options) && options.op == ReduceOp::premul_sum) {
    return bad("-o mulsum: runs without --against");
  }
  if (has("torch_symm_mem")) {
    if (options.op != ReduceOp::sum) return bad("-o: --against torch_symm_mem has sum alone");
    if (const DataType type = options.type.value_or(DataType::f32);
        type != DataType::f32 && type != DataType::bf16) {
      return failure(Code::invalid_argument, "-d %s: --against torch_symm_mem has float and bfloat16 alone",
                     name_of(type));
    }
  }
  if (has("nvshmem") && peers::nvshmem_symbol(options.type.value_or(DataType::f32), options.op).empty()) {
    return failure(Code::invalid_argument, "-d %s -o %s: --against nvshmem has no such reduction",
                   name_of(options.type.value_or(DataType::f32)), name_of(options.op));
  }
  return {};
}

int ranks_of(const BenchOptions& options, int otherwise) {
  if (options.ranks) return *options.ranks;
  if (options.gpus || options.threads_per_gpu)
    return options.gpus.value_or(1) * options.threads_per_gpu.value_or(1);
  return options.tp.value_or(otherwise);
}

Result<std::vector<Case>> cases_of(const BenchOptions& options) {
  std::vector<Case> cases;
  if (!options.workload.empty()) {
    auto loaded = cli::load_workload(options.workload);
    NL_TRY(loaded.status().with_context("--workload"));
    const cli::Workload& workload = *loaded;
    if (options.tp && std::find(workload.tp.begin(), workload.tp.end(), *options.tp) == workload.tp.end()) {
      return failure(Code::invalid_argument, "--tp %d: the workload '%s' is not described for it",
                     *options.tp, workload.name.c_str());
    }
    if (!mpi_has(workload.dtype) && !options.type && has_peer(options, "openmpi")) {
      return failure(
          Code::invalid_argument,
          "--workload %s: its type is %s, which MPI does not have; -d float gives --against openmpi "
          "something to run",
          options.workload.c_str(), name_of(workload.dtype));
    }
    for (const cli::WorkloadSize& size : cli::sizes_of(workload)) {
      cases.push_back({size.count, options.type.value_or(workload.dtype), options.op});
    }
    return cases;
  }
  const DataType type = options.type.value_or(DataType::f32);
  NL_TRY_ASSIGN(const Collective collective, collective_of(options));
  for (std::size_t bytes = options.min_bytes; bytes <= options.max_bytes;) {
    cases.push_back({std::max<std::size_t>(bytes / size_of(type), 1), type, options.op, collective});
    const std::size_t next =
        options.step_factor > 0 ? bytes * options.step_factor : bytes + options.step_bytes;
    if (next <= bytes || cases.size() == 10'000) break;
    bytes = next;
  }
  return cases;
}

cli::Mode mode_of(const BenchOptions& options, Backend backend) {
  const bool in_kernel = options.paired == Paired::deadline;
  return options.mode.value_or(backend == Backend::host ? cli::Mode::eager
                               : in_kernel              ? cli::Mode::kernel
                                                        : cli::Mode::graph);
}

Plan plan_of(const BenchOptions& options, Backend backend) {
  Plan plan;
  plan.mode = mode_of(options, backend);
  // Long enough that what surrounds a sample (a launch, two readings of the clock) does not weigh.
  const int usual = plan.mode == cli::Mode::graph    ? 100
                    : plan.mode == cli::Mode::kernel ? 16
                    : backend == Backend::host       ? 10
                                                     : 1;
  plan.chain = options.chain.value_or(usual);
  const bool paired = options.paired != Paired::none;
  plan.samples = options.samples.value_or(options.percentiles ? trace::kSamplesForP999
                                          : paired            ? 4000
                                                              : 1000);
  plan.rounds = options.rounds.value_or(paired ? 40 : 10);
  plan.warmup = options.warmup;
  plan.check = options.check;
  plan.late = std::chrono::microseconds(options.skew_us);
  // One-shot of PyTorch reads the peers' inputs while others may write: it has no variant in place.
  plan.in_place = options.in_place && options.offsets == 0 && !has_peer(options, "torch_symm_mem") && !paired;
  return plan;
}

}  // namespace nearlight::bench
