// One GPU rank's part of a benchmark, whether its ranks are threads of one process or processes of their own.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/exchange.hpp"
#include "base/status.hpp"
#include "cli/bench/run_cuda.hpp"
#include "probe/cuda_call.hpp"

namespace nearlight::bench {

// What a rank brings and takes away.
struct CudaRank {
  Exchange* exchange = nullptr;                              // the benchmark's own
  std::vector<std::unique_ptr<Exchange>> for_communicators;  // communicators_of() of them
  std::vector<probe::Stream> streams;                        // of each job
  std::vector<Measured> measured;
  std::string memory;
  std::string placement;
  std::string nccl;                             // its version where it took part
  std::map<std::string, std::string> settings;  // as Setting::peers
};

// Communicators of nearlight's that a run makes, one after the other and at the same time.
std::size_t communicators_of(const CudaJob& job);

// Collective, from the rank's own thread. What `rank` still holds afterwards is its result.
Status run_cuda_rank(const CudaJob& job, CudaRank& rank);

// This machine's limits, taken between the first two GPUs of the job, or within the only one.
Result<cli::Floors> floors_of_gpus(const CudaJob& job);

Setting setting_of(const CudaJob& job, const CudaRank& rank, const cli::Floors& floors);

}  // namespace nearlight::bench
