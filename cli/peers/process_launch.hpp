// Peers that want a process for each GPU: PyTorch's symmetric memory and NVSHMEM. The ranks are children of
// the program: its own, or, for PyTorch, Python's, into which nearlight and the benchmark come as a library.
#pragma once

#include <string>
#include <vector>

#include "cli/bench/contender.hpp"
#include "cli/bench/options.hpp"

namespace nearlight::peers {

// Found beside the program.
inline constexpr const char* kTorchBench = "nearlight_torch_bench.py";
inline constexpr const char* kBenchLibrary = "libnearlight_bench.so";

bool needs_processes(const bench::BenchOptions& options);

// Runs the ranks and waits for their end. `devices`: of each rank. Returns the exit status. This process must
// not have touched CUDA.
int bench_in_processes(const bench::BenchOptions& options, const std::vector<int>& devices, bool attach);

// One rank, in its own process. Rank 0 prints. Returns the exit status.
int bench_process(const bench::BenchOptions& options, const std::vector<int>& devices, bool attach, int rank,
                  const std::string& key, const bench::MakePeers& make_peers);

}  // namespace nearlight::peers
