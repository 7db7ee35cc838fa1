// The benchmark between GPU ranks: threads of this process, a stream each.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/status.hpp"
#include "cli/bench/engine.hpp"
#include "cli/bench/options.hpp"
#include "cli/bench/present.hpp"
#include "cli/gpu_look.hpp"
#include "cli/results.hpp"
#include "runtime/communicator.hpp"

namespace nearlight::bench {

struct CudaJob {
  std::vector<int> devices;        // of each rank
  bool attach = false;             // to an NCCL communicator; else memory from CUDA alone
  std::vector<std::string> peers;  // "nccl", "nccl_sym", "nvshmem"; others come by make_peers
  MakePeers make_peers;            // may be empty; once each time that it is run again
  std::vector<Case> cases;
  Plan plan;
  runtime::Options comm;
  runtime::CallOptions call;
  Paired paired = Paired::none;
  std::size_t fused = 0;             // BenchOptions::fused
  std::size_t gemv = 0, tokens = 1;  // BenchOptions::gemv
  std::vector<Forced> forced;        // one, or several beside the route's choice
  std::optional<std::uint32_t> sm;   // kernel mode: the SM that works
  int jobs = 1;                      // communicators that do the same at the same time
  // Run again with the slots at that many places, or with each scratch (see with_scratch()); 0 and empty:
  // once.
  int offsets = 0;
  std::vector<std::size_t> scratch;
  Progress progress;
};

struct CudaResult {
  std::vector<Measured> measured;  // of all offsets or scratches, one after the other
  Setting setting;
};

// Measures the limits, then all implementations. Code::unsupported where this build or machine cannot do it.
Result<CudaResult> run_cuda(const CudaJob& job);

// The device of each rank: `gpus` devices that reach each other, `per_gpu` ranks on each, or `ranks` in all,
// spread in turn. Without any of them: all GPUs that reach each other (at most 8), on a single one 2 ranks.
Result<std::vector<int>> choose_devices(const cli::GpuLook& look, Backend backend, std::optional<int> gpus,
                                        std::optional<int> per_gpu, std::optional<int> ranks);
bool one_rank_per_gpu(const std::vector<int>& devices);

// What the options ask for. Fails where a workload or its sizes cannot be.
Result<CudaJob> cuda_job(const BenchOptions& options, std::vector<int> devices, bool attach);

// `nearlight bench` on GPUs. Returns the exit status.
int bench_cuda(const BenchOptions& options, const cli::GpuLook& look);

}  // namespace nearlight::bench
