#include "cli/bench/rank_cuda.hpp"

#include <algorithm>
#include <chrono>
#include <set>
#include <utility>

#include "cli/bench/fused_contender.hpp"
#include "cli/bench/gemv_contender.hpp"
#include "cli/bench/limits.hpp"
#include "cli/bench/nearlight_contender.hpp"
#include "cli/bench/place_cuda.hpp"
#include "cli/machine.hpp"
#include "cli/peers/nccl_peer.hpp"
#include "cli/peers/nvshmem_peer.hpp"
#include "cli/sol_heaps.hpp"
#include "probe/gpu_facts.hpp"
#include "runtime/checks.hpp"
#include "runtime/create.hpp"

namespace nearlight::bench {

namespace {

// From one slot offset to the next: a MiB, as the speed of a line varies more from page to page than within
// one, and an odd number of lines, so that the offsets fall on all kinds of them.
constexpr std::size_t kOffsetStep = (std::size_t{1} << 20) + 33 * 128;

// nearlight's own, each with a communicator a turn and job.
std::size_t own_contenders(const CudaJob& job) { return job.forced.size() > 1 ? 1 + job.forced.size() : 1; }
// What the route takes, one forced choice, or the route's and then the forced ones.
Forced forced_in(const CudaJob& job, std::size_t contender) {
  if (job.forced.size() == 1) return job.forced[0];
  return contender == 0 ? Forced{} : job.forced[contender - 1];
}
std::size_t turns_of(const CudaJob& job) {
  return std::max({std::size_t{1}, static_cast<std::size_t>(std::max(job.offsets, 0)), job.scratch.size()});
}

// The peers' libraries, as far as they are wanted, for all turns.
struct Peers {
  // Two communicators: the peers' one is aborted when something fails, which takes it away from under whoever
  // else uses it.
  std::shared_ptr<peers::NcclComm> nccl, for_attaching;
  std::shared_ptr<peers::Nvshmem> nvshmem;
};

bool wants(const CudaJob& job, std::string_view peer) {
  return std::find(job.peers.begin(), job.peers.end(), peer) != job.peers.end();
}

Result<Peers> set_up_peers(const CudaJob& job, CudaRank& rank) {
  Peers found;
  if (wants(job, "nccl") || wants(job, "nccl_sym")) {
    NL_TRY_ASSIGN(found.nccl, peers::create_nccl_comm(*rank.exchange));
    rank.nccl = found.nccl->version();
  }
  if (job.attach) {
    NL_TRY_ASSIGN(found.for_attaching, peers::create_nccl_comm(*rank.exchange));
    rank.nccl = found.for_attaching->version();
  }
  if (wants(job, "nvshmem")) {
    NL_TRY_ASSIGN(found.nvshmem, peers::join_nvshmem(*rank.exchange));
  }
  return found;
}

class Turn {
 public:
  Turn(const CudaJob& job, CudaRank& rank, const Peers& peers, std::size_t number)
      : job_(job), rank_(rank), peers_(peers), number_(number) {}

  Status measure(Meeting& meeting, Place& place, std::size_t largest) {
    for (std::size_t own = 0; own < own_contenders(job_); ++own) {
      for (int which = 0; which < job_.jobs; ++which) {
        if (job_.paired != Paired::none) {
          NL_TRY(make_pair());
          continue;
        }
        if (job_.fused != 0) {
          NL_TRY(make_fused());
          continue;
        }
        if (job_.gemv != 0) {
          NL_TRY(make_gemv());
          continue;
        }
        NL_TRY_ASSIGN(auto contender, make_own(own, which));
        (which == 0 ? contenders_ : beside_).push_back(std::move(contender));
      }
    }
    if (job_.gemv == 0) {
      for (const std::string& peer : job_.peers) NL_TRY(add_peer(peer));
    }
    if (job_.make_peers) {
      NL_TRY_ASSIGN(auto more, job_.make_peers(*rank_.exchange));
      for (auto& contender : more) contenders_.push_back(std::move(contender));
    }
    for (const auto& contender : contenders_) {
      if (const std::string text = contender->settings(); !text.empty())
        rank_.settings[contender->impl()] = text;
    }
    Engine engine(meeting, place, views(contenders_), views(beside_));
    NL_TRY(engine.reserve(largest));
    NL_TRY_ASSIGN(auto measured,
                  engine.measure(job_.cases, job_.plan, part_of(job_.progress, number_, turns_of(job_))));
    if (!job_.scratch.empty()) {
      for (Measured& entry : measured) entry.scratch = job_.scratch[number_];
    }
    rank_.measured.insert(rank_.measured.end(), std::make_move_iterator(measured.begin()),
                          std::make_move_iterator(measured.end()));
    // Nobody takes its communicator down while another still measures.
    return meeting.barrier();
  }

 private:
  using Contenders = std::vector<std::unique_ptr<Contender>>;

  bool every_rank_has_a_gpu() const {
    return std::set<int>(job_.devices.begin(), job_.devices.end()).size() == job_.devices.size();
  }
  static std::vector<Contender*> views(const Contenders& contenders) {
    std::vector<Contender*> all;
    for (const auto& contender : contenders) all.push_back(contender.get());
    return all;
  }

  Result<std::unique_ptr<runtime::Communicator>> create(std::size_t own, int which) {
    runtime::Options options = with_pair(job_.comm, job_.paired);
    NL_TRY_ASSIGN(options.early_launch, runtime::effective_early_launch(options));
    // One after another: each is as the only one of a process is.
    if (!options.early_launch && job_.jobs == 1 && every_rank_has_a_gpu()) options.early_launch = true;
    if (job_.offsets > 0) {
      options.heap_offset = number_ * kOffsetStep;
      options.calibrate = false;  // the slots are where the offset puts them
    }
    if (!job_.scratch.empty()) options = with_scratch(options, job_.scratch[number_]);
    if (job_.attach) return runtime::create_cuda_nccl(peers_.for_attaching->get(), options);
    const std::size_t index = (number_ * own_contenders(job_) + own) * static_cast<std::size_t>(job_.jobs) +
                              static_cast<std::size_t>(which);
    auto exchange = std::move(rank_.for_communicators[index]);
    const int device = job_.devices[static_cast<std::size_t>(rank_.exchange->rank())];
    return exchange->same_process() ? runtime::create_cuda_local(std::move(exchange), device, options)
                                    : runtime::create_cuda_processes(std::move(exchange), device, options);
  }

  Result<std::unique_ptr<runtime::Communicator>> create_and_note(std::size_t own, int which) {
    NL_TRY_ASSIGN(auto communicator, create(own, which));
    rank_.memory = communicator->memory();
    if (rank_.placement.empty()) rank_.placement = communicator->placement();
    return communicator;
  }
  runtime::CallOptions call_of(std::size_t own) const {
    runtime::CallOptions call = job_.call;
    const Forced forced = forced_in(job_, own);
    call.algorithm = forced.algorithm;
    call.protocol = forced.protocol;
    return call;
  }

  Status make_pair() {
    NL_TRY_ASSIGN(auto communicator, create_and_note(0, 0));
    contenders_ =
        make_pair_of(job_.paired, std::move(communicator), call_of(0), job_.sm, timeout_of(job_.comm));
    return {};
  }

  int device() const { return job_.devices[static_cast<std::size_t>(rank_.exchange->rank())]; }
  // The all-reduce alone, with the norm fused into it, and with the norm behind it, on one communicator.
  Status make_fused() {
    NL_TRY_ASSIGN(auto made, create_and_note(0, 0));
    const std::shared_ptr<runtime::Communicator> communicator = std::move(made);
    runtime::CallOptions call = call_of(0);
    runtime::CallOptions of_fused;
    of_fused.spread = std::exchange(call.spread, 0u);
    contenders_.push_back(make_nearlight_contender(communicator, call));
    contenders_.push_back(make_fused_contender(communicator, of_fused, job_.fused, device()));
    return add_then_norm(make_nearlight_contender(communicator, call));
  }
  Status add_then_norm(std::unique_ptr<Contender> inner) {
    NL_TRY_ASSIGN(auto contender, make_then_norm_contender(std::move(inner), job_.fused, device()));
    contenders_.push_back(std::move(contender));
    return {};
  }

  // The exchange alone; the product alone, fused, and in a kernel beside the exchanges of all.
  Status make_gemv() {
    NL_TRY_ASSIGN(auto made, create_and_note(0, 0));
    const std::shared_ptr<runtime::Communicator> communicator = std::move(made);
    runtime::CallOptions of_gemv;
    of_gemv.grid = job_.call.grid;
    runtime::CallOptions call = call_of(0);
    call.grid = 0;
    contenders_.push_back(make_nearlight_contender(communicator, call));
    for (const std::string& peer : job_.peers) NL_TRY(add_peer(peer));
    Contenders inner;
    inner.push_back(make_nearlight_contender(communicator, call));
    while (contenders_.size() > 1) {
      inner.insert(inner.begin() + 1, std::move(contenders_.back()));
      contenders_.pop_back();
    }
    const GemvShape shape{job_.cases.front().collective == Collective::all_gather, job_.gemv, job_.tokens};
    NL_TRY_ASSIGN(auto more, make_gemv_contenders(communicator, of_gemv, shape, device(), std::move(inner)));
    for (auto& contender : more) contenders_.push_back(std::move(contender));
    return {};
  }

  Result<std::unique_ptr<Contender>> make_own(std::size_t own, int which) {
    NL_TRY_ASSIGN(auto communicator, create_and_note(own, which));
    const runtime::CallOptions call = call_of(own);
    return make_nearlight_contender(std::move(communicator), call, job_.sm, own > 0);
  }

  Status add_peer(const std::string& peer) {
    if (peer == "nccl" || peer == "nccl_sym") {
      NL_TRY_ASSIGN(auto contender, peers::make_nccl_contender(peers_.nccl, peer == "nccl_sym"));
      if (job_.fused != 0) return add_then_norm(std::move(contender));
      contenders_.push_back(std::move(contender));
    } else if (peer == "nvshmem") {
      contenders_.push_back(peers::make_nvshmem_contender(peers_.nvshmem));
    }
    return {};  // the others come by make_peers
  }

  const CudaJob& job_;
  CudaRank& rank_;
  const Peers& peers_;
  std::size_t number_;
  Contenders contenders_, beside_;
};

}  // namespace

std::size_t communicators_of(const CudaJob& job) {
  return turns_of(job) * own_contenders(job) * static_cast<std::size_t>(job.jobs);
}

Status run_cuda_rank(const CudaJob& job, CudaRank& rank) {
  Exchange& exchange = *rank.exchange;
  const int device = job.devices[static_cast<std::size_t>(exchange.rank())];
  const Limits limits = limits_of(timeout_of(job.comm));
  NL_TRY_ASSIGN(const auto place, make_cuda_place(device, std::move(rank.streams), limits));
  NL_TRY_ASSIGN(const auto meeting, Meeting::create(exchange, samples_per_turn(job.plan), limits.meeting));
  NL_TRY_ASSIGN(const Peers peers, set_up_peers(job, rank));
  std::size_t largest = 0;
  for (const Case& what : job.cases) largest = std::max(largest, what.bytes());
  for (std::size_t number = 0; number < turns_of(job); ++number) {
    NL_TRY(Turn(job, rank, peers, number).measure(*meeting, *place, largest));
  }
  return {};
}

Result<cli::Floors> floors_of_gpus(const CudaJob& job) {
  const auto other = std::find_if(job.devices.begin(), job.devices.end(),
                                  [&](int device) { return device != job.devices[0]; });
  auto report =
      cli::measure_sol_on_gpus(job.devices[0], other != job.devices.end() ? *other : job.devices[0]);
  NL_TRY(report.status().with_context("probe of this machine's limits"));
  return cli::floors_of(*report);
}

Setting setting_of(const CudaJob& job, const CudaRank& rank, const cli::Floors& floors) {
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
  setting.peers = rank.settings;
  return setting;
}

}  // namespace nearlight::bench
