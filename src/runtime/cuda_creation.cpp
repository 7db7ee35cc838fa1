// How a communicator of GPU ranks is made.
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "algorithm/cuda/barrier.hpp"
#include "algorithm/cuda/clock.hpp"
#include "algorithm/cuda/full_stop.hpp"
#include "algorithm/cuda/fused.hpp"
#include "algorithm/cuda/gemv.hpp"
#include "algorithm/cuda/host_turn.hpp"
#include "algorithm/cuda/messages.hpp"
#include "algorithm/cuda/parts.hpp"
#include "base/fault_point.hpp"
#include "base/variables.hpp"
#include "memory/handover.hpp"
#include "probe/line_test.hpp"
#include "runtime/calibration.hpp"
#include "runtime/checks.hpp"
#include "runtime/cuda_call.hpp"
#include "runtime/cuda_communicator.hpp"
#include "runtime/cuda_places.hpp"

namespace nearlight::runtime {

namespace {

struct Sizes {
  std::uint32_t regions, slots, chunk_bytes, packets, lines;
};

// Sizes that the caller did not give, the same on all ranks because they follow from what all ranks know.
// `wants_lines`: whether LL128 may be chosen, or is asked for.
Sizes choose_sizes(const Options& options, const std::vector<Place>& places, int per_gpu,
                   const route::Table& table, bool wants_lines, std::uint32_t max_ctas) {
  int sms = places[0].sms;
  for (const Place& place : places) sms = std::min(sms, place.sms);
  Sizes sizes{options.regions, options.slots, options.chunk_bytes, options.packets, options.lines};
  if (sizes.regions == 0) {
    sizes.regions = route::regions_of(sms, per_gpu);
    // What no CTA would use is no use to anybody, and the packets then do for the CTAs that there are.
    if (max_ctas != 0) sizes.regions = std::min(sizes.regions, max_ctas);
  }
  const auto nranks = static_cast<std::uint32_t>(places.size());
  if (sizes.slots == 0) sizes.slots = algorithm::kMaxThreads * algorithm::max_held(static_cast<int>(nranks));
  if (sizes.packets == 0) sizes.packets = route::packets_for(table, static_cast<int>(nranks), sizes.regions);
  if (sizes.lines == 0 && wants_lines)
    sizes.lines = route::lines_for(table, static_cast<int>(nranks), sizes.regions);
  if (sizes.chunk_bytes == 0) sizes.chunk_bytes = 128 * 1024 / nranks / 1024 * 1024;
  return sizes;
}

// Of pipes: as many CTAs as a message ever takes.
constexpr std::uint32_t kMostLanes = 32;

bool asks_for_lines(const route::Forced& forced) {
  return forced.protocol == route::Protocol::ll128 || forced.algorithm == route::Algorithm::two_shot_atomic;
}

}  // namespace

Result<std::unique_ptr<Communicator>> CudaCommunicator::create(std::shared_ptr<Exchange> exchange, int device,
                                                               const HeapPlan& plan, const Options& options,
                                                               std::unique_ptr<Fallback> fallback) {
  if (exchange == nullptr) return failure(Code::invalid_argument, "exchange is null");
  const Deadline deadline = plan.deadline.value_or(create_deadline(options));
  const int nranks = exchange->nranks();
  if (nranks < 1 || nranks > protocol::kMaxRanks) {
    return failure(Code::invalid_argument, "nranks: %d is not between 1 and %d", nranks, protocol::kMaxRanks);
  }
  const auto place = look_at(device);
  const route::Target own{true, place.ok() ? place->name : "", nranks};
  const int nccl_version = fallback != nullptr ? fallback->version() : 0;
  const auto settings = settings_of(options, place.ok() ? &own : nullptr, nccl_version);
  const auto answers = variables::read(variables::kDump);
  const bool writes_dumps = variables::read(variables::kDumpDir).has_value();
  const auto folder = trace_folder(options.trace);
  Status readable = settings.ok() ? answers.status() : settings.status();
  if (readable.ok()) readable = folder.status();
  NL_TRY(agree(*exchange, readable.ok() ? place.status() : readable, deadline));
  const bool dumps = *answers || writes_dumps;
  NL_TRY(check_options_agree(*exchange, options, settings.value(), deadline));
  NL_TRY_ASSIGN(const auto places, gather_values(*exchange, place.value(), deadline));
  NL_TRY_ASSIGN(const int per_gpu, ranks_per_gpu(places, plan.one_rank_per_gpu));
  const Steering& steering = settings.value().steering;
  const route::Target target{true, common_gpu(places), nranks};
  const route::Table table = steering.table.value_or(route::shipped_table(target));
  probe::LineReport lines;
  if (nranks > 1) {
    NL_TRY_ASSIGN(const Paths paths, paths_between(*exchange, places, device, deadline));
    lines.path = paths.worst;
    if (plan.by_nvlink) NL_TRY(check_by_nvlink(paths));
  }
  // Somebody must want them: the test takes its time, and lines their memory.
  const bool wants_lines = options.lines != 0 || table.ll128_limit_bytes != 0 ||
                           !settings.value().deterministic || asks_for_lines(steering.forced);
  const bool may_use_lines = nranks > 1 && wants_lines && lines.path == probe::PathType::nvl;
  const Sizes sizes = choose_sizes(options, places, per_gpu, table, may_use_lines, settings.value().max_ctas);

  const DeviceGuard guard(device);
  std::unique_ptr<CudaCommunicator> comm(new CudaCommunicator);
  comm->rank_ = exchange->rank();
  comm->device_ = device;
  comm->regions_ = sizes.regions;
  comm->max_ctas_ = settings.value().max_ctas;
  if (nranks > 1) {
    comm->early_ = EarlyLaunch(settings.value().early_launch, device, per_gpu == 1);
    NL_TRY_ASSIGN(const auto early,
                  gather_values(*exchange, static_cast<std::uint32_t>(comm->early_.is_on()), deadline));
    if (std::count(early.begin(), early.end(), 0u) != 0) comm->early_ = {};
  }
  comm->layout_ = {nranks, sizes.slots, sizes.chunk_bytes / 16, sizes.packets, sizes.lines};
  comm->deterministic_ = settings.value().deterministic;
  comm->adds_lines_ = oldest_of(places) >= 90;
  comm->large_shared_ = have_large_shared(places);
  if (!comm->deterministic_ && comm->adds_lines_) comm->layout_.sums = comm->layout_.wide;
  comm->lines_ = lines;
  comm->heap_offset_ = options.heap_offset;
  comm->timeout_ = settings.value().timeout;
  comm->wish_ = {plan, options};
  comm->wish_.heap.deadline.reset();
  comm->survivors_ = Survivors(*exchange);
  comm->table_ = table;
  comm->path_ = number_of(steering.forced);
  comm->route_log_ = RouteLog(steering.log && exchange->rank() == 0);
  comm->route_log_.begin(table, target, steering.left_aside);
  comm->arguments_ = CudaArguments(device, settings.value().check);
  comm->fallback_ = std::move(fallback);
  comm->nccl_ = {nccl_version, oldest_of(places)};
  comm->check_ = settings.value().check && nranks > 1;

  comm->lanes_ = std::min(sizes.regions, kMostLanes);
  if (comm->max_ctas_ != 0) comm->lanes_ = std::min(comm->lanes_, comm->max_ctas_);
  comm->pipes_at_ = options.heap_offset + sizes.regions * comm->layout_.region_bytes();

  // Ranks that share a GPU share its L2: no region of it is nearer to another rank.
  const bool calibrates = settings.value().calibrate && nranks > 1 && per_gpu == 1;
  if (nranks > 1 && per_gpu > 1) comm->placement_ = route::Placement("ranks share a GPU");
  if (*folder) {
    NL_TRY_ASSIGN(comm->tracer_, Tracer::start(*exchange, **folder, "cuda", deadline));
  }
  auto prepare = [&]() -> Status {
    NL_TRY(guard.status());
    NL_TRY(fault_points::pass(fault_points::kCudaKernels));
    NL_TRY(algorithm::cuda::preload());
    NL_TRY(algorithm::cuda::preload_barrier());
    NL_TRY(algorithm::cuda::preload_parts());
    NL_TRY(algorithm::cuda::preload_messages());
    NL_TRY(algorithm::cuda::preload_fused());
    if (oldest_of(places) >= algorithm::kGemvCapability)
      NL_TRY(algorithm::cuda::preload_gemv(comm->large_shared_));
    if (may_use_lines) NL_TRY(probe::load_line_test());
    if (calibrates || comm->tracer_) NL_TRY(algorithm::cuda::preload_clock());
    if (comm->tracer_) NL_TRY(algorithm::cuda::preload_traced());
    if (comm->tracer_) NL_TRY(algorithm::cuda::preload_traced_parts());
    if (comm->tracer_) NL_TRY(algorithm::cuda::preload_traced_fused());
    if (comm->tracer_) NL_TRY(algorithm::cuda::preload_traced_messages());
    if (comm->tracer_ && oldest_of(places) >= algorithm::kGemvCapability)
      NL_TRY(algorithm::cuda::preload_traced_gemv(comm->large_shared_));
    NL_TRY(algorithm::cuda::preload_full_stop());
    NL_TRY(algorithm::cuda::preload_host_turn());
    if (comm->check_) NL_TRY(comm->stream_order_.begin());
    NL_TRY(fault_points::pass(fault_points::kCudaControl));
    const bool by_nccl = nccl_version != 0;
    const CudaControl::Parts parts{.regions = sizes.regions,
                                   .pipe_ends = comm->lanes_ * static_cast<std::uint32_t>(nranks),
                                   .traced = comm->tracer_.has_value(),
                                   .staging = nranks > 1 && !by_nccl,
                                   .buffer_bytes = nranks > 1 && by_nccl ? route::kFirstSafeBytes : 0};
    NL_TRY_ASSIGN(comm->control_, CudaControl::create(device, parts, options.initial_epoch));
    if (dumps) {
      NL_TRY_ASSIGN(comm->reader_, CudaReader::create(device));
    }
    return {};
  };
  NL_TRY(agree(*exchange, prepare(), deadline));
  std::size_t bytes = comm->pipes_at_ + comm->lanes_ * algorithm::pipe_bytes(pipe_layout(comm->layout_));
  if (may_use_lines) bytes = std::max(bytes, options.heap_offset + probe::kLineTestBytes);
  auto heap = plan.make(plan.context, *exchange, device, bytes, deadline);
  NL_TRY(heap.status().with_context(scratch_in_words(sizes.regions, comm->layout_)));
  comm->heap_ = std::move(*heap);
  comm->route_log_.note_memory(comm->memory(), plan.reason);
  comm->exchange_ = std::move(exchange);
  Exchange& group = *comm->exchange_;
  // Before any kernel of ours may be waiting.
  if (nccl_version != 0 && nranks > 1 &&
      (table.nccl_first_bytes != 0 || steering.forced.fallback ||
       steering.forced.algorithm == route::Algorithm::nccl)) {
    NL_TRY(comm->fallback_->prepare(group, table.nccl_first_bytes, deadline));
  }
  if (nccl_version == 0 && nranks > 1) NL_TRY(comm->add_staged_path(deadline));
  NL_TRY(agree(group, fault_points::pass(fault_points::kCudaLines), deadline));
  // First of what uses the scratch: it needs zeros, and leaves them.
  if (may_use_lines) {
    NL_TRY(comm->test_lines(options, places[static_cast<std::size_t>(comm->rank_)].sms, deadline));
  }
  if (calibrates) {
    NL_TRY(agree(group, comm->empty_packets(), deadline));
    NL_TRY_ASSIGN(comm->placement_, calibrate(group, device, comm->args_of_region(Collective::all_reduce),
                                              sizes.regions, deadline));
  }
  comm->route_log_.note(comm->placement_);
  Status ready = calibrates ? comm->clear_regions() : Status();
  if (ready.ok()) ready = comm->empty_packets();
  if (ready.ok()) ready = comm->rest_pipes(options.initial_epoch);
  if (ready.ok()) ready = comm->start_watching(dumps, *answers);
  if (comm->check_ && group.same_process()) {
    NL_TRY_ASSIGN(comm->ledger_, memory::share_from_rank0<CallLedger>(
                                     group, std::make_shared<CallLedger>(nranks), deadline));
    comm->ledger_->join(comm->rank_, [raw = comm.get()](const Status& why) { raw->stop(why, -1); });
  }
  // Nobody leaves before all are ready: a fast rank's first store must find the others' memory as it is at
  // rest.
  NL_TRY(agree(group, ready, deadline));
  return std::unique_ptr<Communicator>(std::move(comm));
}

Status CudaCommunicator::test_lines(const Options& options, int sms, Deadline deadline) {
  const int ranks = nranks();
  const memory::HeapView& heap = heap_->view();
  probe::LineTest test;
  test.mine = heap.part(rank_) + heap_offset_;
  test.next = heap.part((rank_ + 1) % ranks) + heap_offset_;
  test.previous = heap.part((rank_ + ranks - 1) % ranks) + heap_offset_;
  test.sms = sms;
  test.adds = !deterministic_ && adds_lines_;
  test.way = options.line_way;
  test.lines = options.test_lines;
  const auto outcome = probe::run_line_test(test);
  // From here on nobody's neighbour writes to it any more.
  NL_TRY(agree(*exchange_, outcome.status(), deadline));
  NL_TRY_ASSIGN(const auto all, gather_values(*exchange_, outcome.value(), deadline));
  const auto judge = [&all, &test](probe::LineCounts probe::LineTestResult::*of, probe::LineCounts& total) {
    total = all[0].*of;
    for (const probe::LineTestResult& one : all) {
      total.lines = std::min(total.lines, (one.*of).lines);
      total.torn = std::max(total.torn, (one.*of).torn);
      total.missing = std::max(total.missing, (one.*of).missing);
    }
    return probe::verdict_of(total, 2 * test.lines);
  };
  lines_.stores = judge(&probe::LineTestResult::stores, lines_.of_stores);
  if (test.adds) lines_.adds = judge(&probe::LineTestResult::adds, lines_.of_adds);
  const auto clear = [&test]() -> Status {
    NL_TRY_CUDA(cudaMemset(test.mine, 0, probe::kLineTestBytes));
    NL_TRY_CUDA(cudaStreamSynchronize(cudaStreamLegacy));
    return {};
  };
  return agree(*exchange_, clear(), deadline);
}

// The threads that look while the program does something else: whether the others' processes live, and who
// asks for a dump.
Status CudaCommunicator::start_watching(bool dumps, bool answers) {
  const auto processes = exchange_->processes();
  const auto is_other = [](pid_t process) { return process != ::getpid(); };
  if (std::any_of(processes.begin(), processes.end(), is_other)) {
    NL_TRY_ASSIGN(
        watch_, PeerWatch::start(processes, rank_, [this](int peer, pid_t pid) {
          stop(failure(Code::remote_error, "rank %d: its process %d has ended", peer, static_cast<int>(pid)),
               peer);
        }));
  }
  if (dumps) {
    // A GPU's time-out is found by whoever looks, and the program may not.
    NL_TRY_ASSIGN(dump_service_, DumpService::start([this] { return dump(); },
                                                    [this] {
                                                      const auto fault = this->fault();
                                                      if (fault && fault->status.code() == Code::timeout)
                                                        tell_once();
                                                    },
                                                    answers));
  }
  return {};
}

}  // namespace nearlight::runtime
