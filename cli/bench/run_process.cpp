#include "cli/bench/run_process.hpp"

#include <cstdlib>
#include <utility>

#include "bootstrap/process_group.hpp"
#include "cli/bench/rank_cuda.hpp"
#include "probe/concurrent_streams.hpp"

namespace nearlight::bench {

namespace {

// A process that loads a peer's library may take its time.
constexpr std::chrono::seconds kMeetLimit{120};

}  // namespace

Result<CudaResult> run_cuda_process(const CudaJob& job, int rank, const std::string& key) {
  const auto nranks = static_cast<int>(job.devices.size());
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
  const Deadline deadline = Deadline::after(kMeetLimit);
  NL_TRY_ASSIGN(const auto exchange, bootstrap::join_process_group({rank, nranks, key}, deadline));
  CudaRank own;
  own.exchange = exchange.get();
  for (std::size_t i = 0; i < communicators_of(job); ++i) {
    NL_TRY_ASSIGN(auto group, bootstrap::join_process_group(
                                  {rank, nranks, key + " communicator " + std::to_string(i)}, deadline));
    own.for_communicators.push_back(std::move(group));
  }
  cli::Floors floors;
  Status probed;
  if (rank == 0) {
    auto measured = floors_of_gpus(job);
    probed = measured.status();
    if (measured.ok()) floors = *measured;
  }
  // The others leave the GPUs alone meanwhile.
  NL_TRY(agree(*exchange, probed, Deadline::after(kMeetLimit)));
  NL_TRY_ASSIGN(own.streams,
                probe::concurrent_streams(job.devices[static_cast<std::size_t>(rank)], job.jobs));
  NL_TRY(run_cuda_rank(job, own));
  CudaResult result;
  result.setting = setting_of(job, own, floors);
  result.measured = std::move(own.measured);
  return result;
}

}  // namespace nearlight::bench
