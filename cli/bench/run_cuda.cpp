#include "cli/bench/run_cuda.hpp"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <map>
#include <thread>
#include <utility>

#include "bootstrap/in_process.hpp"
#include "cli/bench/limits.hpp"
#include "cli/bench/nearlight_contender.hpp"
#include "cli/bench/place_cuda.hpp"
#include "cli/machine.hpp"
#include "cli/peers/nccl_peer.hpp"
#include "cli/sol_heaps.hpp"
#include "probe/concurrent_streams.hpp"
#include "probe/gpu_facts.hpp"
#include "runtime/create.hpp"

namespace nearlight::bench {

namespace {

// From one slot offset to the next: a MiB, as the speed of a line varies more from page to page than within
// one, and an odd number of lines, so that the offsets fall on all kinds of them.
constexpr std::size_t kOffsetStep = (std::size_t{1} << 20) + 33 * 128;

using Exchanges = std::vector<std::unique_ptr<Exchange>>;

// What one rank's thread brings and takes away.
struct Rank {
  Exchange* exchange = nullptr;  // the benchmark's own
  Exchanges for_communicators;   // one for each that is created
  probe::Stream stream;
  Status status;
  std::vector<Measured> measured;
  std::string memory;
  std::string placement;
  std::string nccl;
};

// nearlight's own, each with a communicator a turn.
std::size_t own_contenders(const CudaJob& job) { return job.forced.size() > 1 ? 1 + job.forced.size() : 1; }
// What the route takes, one forced choice, or the route's and then the forced ones.
Forced forced_in(const CudaJob& job, std::size_t contender) {
  if (job.forced.size() == 1) return job.forced[0];
  return contender == 0 ? Forced{} : job.forced[contender - 1];
}
std::size_t turns_of(const CudaJob& job) {
  return std::max({std::size_t{1}, static_cast<std::size_t>(std::max(job.offsets, 0)), job.scratch.size()});
}

Result<std::unique_ptr<runtime::Communicator>> create_own(const CudaJob& job, Rank& rank, int device,
                                                          std::size_t turn, std::size_t contender,
                                                          peers::NcclComm* nccl) {
  runtime::Options options = job.comm;
  if (job.offsets > 0) {
    options.heap_offset = turn * kOffsetStep;
    options.calibrate = false;  // the slots are where the offset puts them
  }
  if (!job.scratch.empty()) options = with_scratch(options, job.scratch[turn]);
  if (job.attach) return runtime::create_cuda_nccl(nccl->get(), options);
  return runtime::create_cuda_local(std::move(rank.for_communicators[turn * own_contenders(job) + contender]),
                                    device, options);
}

Status run_rank(const CudaJob& job, Rank& rank) {
  Exchange& exchange = *rank.exchange;
  const int device = job.devices[static_cast<std::size_t>(exchange.rank())];
  const Limits limits =
      limits_of(job.comm.timeout.value_or(std::chrono::milliseconds(BenchOptions().timeout_ms)));
  NL_TRY_ASSIGN(const auto place, make_cuda_place(device, std::move(rank.stream), limits));
  NL_TRY_ASSIGN(const auto meeting, Meeting::create(exchange, samples_per_turn(job.plan), limits.meeting));
  // Two communicators: the peers' one is aborted when something fails, which takes it away from under whoever
  // else uses it.
  std::shared_ptr<peers::NcclComm> for_peers, for_attaching;
  if (!job.peers.empty()) {
    NL_TRY_ASSIGN(for_peers, peers::create_nccl_comm(exchange));
    rank.nccl = for_peers->version();
  }
  if (job.attach) {
    NL_TRY_ASSIGN(for_attaching, peers::create_nccl_comm(exchange));
    rank.nccl = for_attaching->version();
  }
  std::size_t largest = 0;
  for (const Case& what : job.cases) largest = std::max(largest, what.bytes());

  const std::size_t turns = turns_of(job);
  for (std::size_t turn = 0; turn < turns; ++turn) {
    std::vector<std::unique_ptr<Contender>> contenders;
    for (std::size_t own = 0; own < own_contenders(job); ++own) {
      NL_TRY_ASSIGN(auto communicator, create_own(job, rank, device, turn, own, for_attaching.get()));
      rank.memory = communicator->memory();
      if (rank.placement.empty()) rank.placement = communicator->placement();
      runtime::CallOptions call = job.call;
      const Forced forced = forced_in(job, own);
      call.algorithm = forced.algorithm;
      call.protocol = forced.protocol;
      contenders.push_back(make_nearlight_contender(std::move(communicator), call, job.sm, own > 0));
    }
    for (const std::string& peer : job.peers) {
      NL_TRY_ASSIGN(auto contender, peers::make_nccl_contender(for_peers, peer == "nccl_sym"));
      contenders.push_back(std::move(contender));
    }
    std::vector<Contender*> views;
    for (const auto& contender : contenders) views.push_back(contender.get());
    Engine engine(*meeting, *place, views);
    NL_TRY(engine.reserve(largest));
    NL_TRY_ASSIGN(auto measured, engine.measure(job.cases, job.plan, part_of(job.progress, turn, turns)));
    if (!job.scratch.empty()) {
      for (Measured& entry : measured) entry.scratch = job.scratch[turn];
    }
    rank.measured.insert(rank.measured.end(), std::make_move_iterator(measured.begin()),
                         std::make_move_iterator(measured.end()));
    // Nobody takes its communicator down while another still measures.
    NL_TRY(meeting->barrier());
  }
  return {};
}

// Which failure to tell: the first that is not about another rank's.
Status first_failure(const std::vector<Rank>& ranks) {
  Status second_hand;
  for (const Rank& rank : ranks) {
    if (rank.status.ok()) continue;
    if (rank.status.code() != Code::remote_error && rank.status.code() != Code::aborted) return rank.status;
    if (second_hand.ok()) second_hand = rank.status;
  }
  return second_hand;
}

Setting setting_of(const CudaJob& job, const Rank& rank, const cli::Floors& floors) {
  const probe::GpuFacts facts = probe::gpu_facts();
  Setting setting;
  setting.backend = job.attach ? "nccl" : "cuda";
  setting.memory = rank.memory;
  setting.placement = rank.placement;
  setting.ranks = static_cast<int>(job.devices.size());
  std::vector<int> used;
  for (const int device : job.devices) {
    setting.places.push_back("device " + std::to_string(device) + " [" +
                             facts.devices[static_cast<std::size_t>(device)].name + "]");
    if (std::find(used.begin(), used.end(), device) == used.end()) used.push_back(device);
  }
  setting.machine = cli::describe_machine(facts, used, rank.nccl);
  setting.floors = floors;
  return setting;
}

}  // namespace

Result<CudaResult> run_cuda(const CudaJob& job) {
  const auto nranks = static_cast<int>(job.devices.size());
  // Streams of ranks that share a GPU must not share a hardware queue, or one rank's kernel waits behind
  // another's that waits for it. CUDA reads this when it starts, which has not happened yet.
  if (!one_rank_per_gpu(job.devices)) setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
  // Between two of the GPUs, or within the only one.
  const auto other = std::find_if(job.devices.begin(), job.devices.end(),
                                  [&](int device) { return device != job.devices[0]; });
  auto report =
      cli::measure_sol_on_gpus(job.devices[0], other != job.devices.end() ? *other : job.devices[0]);
  NL_TRY(report.status().with_context("probe of this machine's limits"));
  const cli::Floors floors = cli::floors_of(*report);

  Exchanges own = bootstrap::make_in_process_group(nranks);
  std::vector<Rank> ranks(static_cast<std::size_t>(nranks));
  const std::size_t communicators = turns_of(job) * own_contenders(job);
  for (std::size_t i = 0; i < communicators; ++i) {
    Exchanges group = bootstrap::make_in_process_group(nranks);
    for (std::size_t r = 0; r < ranks.size(); ++r) ranks[r].for_communicators.push_back(std::move(group[r]));
  }
  std::map<int, std::vector<Rank*>> on_device;
  for (std::size_t r = 0; r < ranks.size(); ++r) on_device[job.devices[r]].push_back(&ranks[r]);
  for (auto& [device, here] : on_device) {
    NL_TRY_ASSIGN(auto streams, probe::concurrent_streams(device, static_cast<int>(here.size())));
    for (std::size_t i = 0; i < here.size(); ++i) here[i]->stream = std::move(streams[i]);
  }
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    ranks[r].exchange = own[r].get();
    threads.emplace_back([&job, &ranks, &own, r] {
      ranks[r].status = run_rank(job, ranks[r]);
      // A rank that stopped ends the waits of those that have not.
      own[r].reset();
      ranks[r].for_communicators.clear();
    });
  }
  for (std::thread& thread : threads) thread.join();

  NL_TRY(first_failure(ranks));
  for (std::size_t i = 0; i < ranks[0].measured.size(); ++i) {
    // Where rank 0 saw nothing wrong but another did, its words are kept.
    for (const Rank& rank : ranks) {
      if (ranks[0].measured[i].first_wrong.empty())
        ranks[0].measured[i].first_wrong = rank.measured[i].first_wrong;
    }
  }
  CudaResult result;
  result.setting = setting_of(job, ranks[0], floors);
  result.measured = std::move(ranks[0].measured);
  return result;
}

}  // namespace nearlight::bench
