#include "cli/bench/run_cuda.hpp"

#include <cstdlib>
#include <map>
#include <thread>
#include <utility>

#include "bootstrap/in_process.hpp"
#include "cli/bench/rank_cuda.hpp"
#include "probe/concurrent_streams.hpp"

namespace nearlight::bench {

namespace {

using Exchanges = std::vector<std::unique_ptr<Exchange>>;

// Which failure to tell: the first that is not about another rank's.
Status first_failure(const std::vector<Status>& ranks) {
  Status second_hand;
  for (const Status& status : ranks) {
    if (status.ok()) continue;
    if (status.code() != Code::remote_error && status.code() != Code::aborted) return status;
    if (second_hand.ok()) second_hand = status;
  }
  return second_hand;
}

}  // namespace

Result<CudaResult> run_cuda(const CudaJob& job) {
  const auto nranks = static_cast<int>(job.devices.size());
  // Streams of ranks that share a GPU, and of two jobs, must not share a hardware queue, or one rank's kernel
  // waits behind another's that waits for it. CUDA reads this when it starts, which has not happened yet.
  if (!one_rank_per_gpu(job.devices) || job.jobs > 1) setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
  NL_TRY_ASSIGN(const cli::Floors floors, floors_of_gpus(job));

  Exchanges own = bootstrap::make_in_process_group(nranks);
  std::vector<CudaRank> ranks(static_cast<std::size_t>(nranks));
  for (std::size_t i = 0; i < communicators_of(job); ++i) {
    Exchanges group = bootstrap::make_in_process_group(nranks);
    for (std::size_t r = 0; r < ranks.size(); ++r) ranks[r].for_communicators.push_back(std::move(group[r]));
  }
  std::map<int, std::vector<CudaRank*>> on_device;
  for (std::size_t r = 0; r < ranks.size(); ++r) on_device[job.devices[r]].push_back(&ranks[r]);
  for (auto& [device, here] : on_device) {
    NL_TRY_ASSIGN(auto streams, probe::concurrent_streams(device, static_cast<int>(here.size()) * job.jobs));
    for (std::size_t i = 0; i < streams.size(); ++i)
      here[i % here.size()]->streams.push_back(std::move(streams[i]));
  }
  std::vector<Status> statuses(ranks.size());
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    ranks[r].exchange = own[r].get();
    threads.emplace_back([&job, &ranks, &own, &statuses, r] {
      statuses[r] = run_cuda_rank(job, ranks[r]);
      // A rank that stopped ends the waits of those that have not.
      own[r].reset();
      ranks[r].for_communicators.clear();
    });
  }
  for (std::thread& thread : threads) thread.join();

  NL_TRY(first_failure(statuses));
  for (std::size_t i = 0; i < ranks[0].measured.size(); ++i) {
    // Where rank 0 saw nothing wrong but another did, its words are kept.
    for (const CudaRank& rank : ranks) {
      if (ranks[0].measured[i].first_wrong.empty())
        ranks[0].measured[i].first_wrong = rank.measured[i].first_wrong;
    }
  }
  CudaResult result;
  result.setting = setting_of(job, ranks[0], floors);
  result.measured = std::move(ranks[0].measured);
  set_costs(job.paired, result.measured);
  return result;
}

}  // namespace nearlight::bench
