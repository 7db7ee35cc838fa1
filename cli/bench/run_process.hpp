// A GPU rank of the benchmark that is a process of its own, because a peer that it is measured against wants
// one process a GPU.
#pragma once

#include <string>

#include "base/status.hpp"
#include "cli/bench/run_cuda.hpp"

namespace nearlight::bench {

// Collective over the processes that come with the same key. All of `measured` and the setting are right on
// rank 0; the others have what they saw themselves wrong. Code::unsupported where this build has no CUDA.
Result<CudaResult> run_cuda_process(const CudaJob& job, int rank, const std::string& key);

}  // namespace nearlight::bench
