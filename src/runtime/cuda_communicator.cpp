#include "runtime/cuda_communicator.hpp"

#include <algorithm>
#include <utility>

#include "algorithm/cuda/barrier.hpp"
#include "base/fault_point.hpp"
#include "base/log.hpp"
#include "runtime/call_route.hpp"
#include "runtime/capture_mode.hpp"
#include "runtime/checks.hpp"
#include "runtime/cuda_call.hpp"
#include "runtime/cuda_clock.hpp"
#include "runtime/device_memory.hpp"
#include "runtime/nvtx_range.hpp"

namespace nearlight::runtime {

char* CudaCommunicator::own_regions() const {
  return heap_->view().base + static_cast<std::size_t>(rank_) * heap_->view().stride + heap_offset_;
}

Status CudaCommunicator::clear_regions() {
  NL_TRY_CUDA(cudaMemset(own_regions(), 0, regions_ * layout_.region_bytes()));
  NL_TRY_CUDA(cudaStreamSynchronize(cudaStreamLegacy));
  return {};
}

Status CudaCommunicator::empty_packets() {
  NL_TRY(fault_points::pass(fault_points::kCudaPackets));
  char* const first = own_regions() + layout_.packets_at();
  NL_TRY_CUDA(cudaMemset2D(first, layout_.region_bytes(), 0xff, layout_.packets_bytes(), regions_));
  NL_TRY_CUDA(cudaStreamSynchronize(cudaStreamLegacy));
  return {};
}

CudaCommunicator::~CudaCommunicator() {
  dump_service_.reset();
  watch_.reset();
  if (ledger_ != nullptr) ledger_->leave(rank_);
  // Ends what is still running and marks the state words, so that a graph replayed later does nothing. A
  // failure to do so means that the device is unusable; there is nobody left to tell.
  if (staged_ != nullptr) {
    health_.set(Health::left);
    staged_->stop();
  }
  if (control_ != nullptr && heap_ != nullptr) {
    const bool at_rest = control_->close(regions_).ok();
    if (at_rest && tracer_ && tracer_->writes()) write_trace();
  }
  staged_.reset();
  channels_.clear();
  heap_.reset();
  control_.reset();
  CudaControl::free_retired(device_);
}

Status CudaCommunicator::add_span(trace::RankTrace::Span span) {
  NL_TRY(check_span(span, rank(), nranks()));
  return tracer_ && tracer_->writes() ? tracer_->add(std::move(span)) : Status();
}

void CudaCommunicator::write_trace() {
  const auto read = [this]() -> Status {
    const DeviceGuard guard(device_);
    NL_TRY(guard.status());
    std::vector<trace::EpochTimes> ring(trace::kLinesOnGpu);
    for (std::uint32_t region = 0; region < regions_; ++region) {
      NL_TRY_CUDA(cudaMemcpy(ring.data(), control_->trace() + std::size_t{region} * ring.size(),
                             ring.size() * sizeof ring[0], cudaMemcpyDeviceToHost));
      trace::append(tracer_->ranks(), region, ring);
    }
    std::vector<trace::TurnTimes> turns(trace::turn_rings(lanes_, nranks()) * trace::kTurnLinesOnGpu);
    NL_TRY_CUDA(
        cudaMemcpy(turns.data(), control_->turns(), turns.size() * sizeof turns[0], cudaMemcpyDeviceToHost));
    trace::append(tracer_->ranks(), lanes_, turns);
    NL_TRY_ASSIGN(const ClockOffset clock, measure_clock_offset());
    tracer_->ranks().offset_ns = clock.offset_ns;
    tracer_->ranks().error_ns = clock.error_ns;
    return {};
  };
  if (const Status done = read(); !done.ok())
    log::warn("no trace is written: " + done.to_string());
  else
    tracer_->write();
}

route::Facts CudaCommunicator::facts(std::size_t count, DataType type, ReduceOp op) const {
  return {.gpu = true,
          .nranks = nranks(),
          .count = count,
          .type = type,
          .op = op,
          .regions = regions_,
          .slots = layout_.slots,
          .cells = layout_.cells,
          .packets = layout_.packets,
          .table = &table_,
          .forced = forced_of(path_.load(std::memory_order_relaxed)),
          .max_ctas = max_ctas_,
          .nccl = nccl_,
          .staged = staged_ != nullptr,
          .lines = layout_.wide,
          .sums = layout_.sums,
          .adds_lines = adds_lines_,
          .deterministic = deterministic_,
          .clusters = adds_lines_,  // both from compute capability 9.0 on
          .large_shared = large_shared_,
          .whole = lines_};
}

Status CudaCommunicator::set_path(const std::string& path) {
  NL_TRY_ASSIGN(const route::Forced forced, forced_of(path, "path"));
  NL_TRY(check_forced(forced, nccl_.version != 0, "path"));
  if (const char* const why = route::left_aside_for_all(facts(1, DataType::f32, ReduceOp::sum), forced);
      why != nullptr)
    return failure(Code::unsupported, "path is \"%s\": %s", path.c_str(), why);
  // Before calls ask for it, so that a rank that cannot have the thread says so here.
  const bool staged = forced.algorithm == route::Algorithm::staged || forced.fallback;
  if (staged && staged_ != nullptr) NL_TRY(staged_->start());
  path_.store(number_of(forced), std::memory_order_relaxed);
  return {};
}

route::Route CudaCommunicator::explain_all_reduce(std::size_t count, DataType type, ReduceOp op) const {
  return route::all_reduce(facts(count, type, op));
}

Status CudaCommunicator::apply_shape(const CallOptions& options, route::Route& route) const {
  if (options.grid != 0) {
    if (options.grid > regions_) {
      return failure(Code::invalid_argument, "grid: %u CTAs, but the communicator has %u regions",
                     options.grid, regions_);
    }
    if (max_ctas_ != 0 && options.grid > max_ctas_) {
      return failure(Code::invalid_argument, "grid: %u CTAs, but max_ctas is %u", options.grid, max_ctas_);
    }
    route.grid = options.grid;
  }
  if (options.threads != 0) {
    if (options.threads % 32 != 0 || options.threads > algorithm::kMaxThreads) {
      return failure(Code::invalid_argument, "threads: %u is not a multiple of 32 up to %u", options.threads,
                     algorithm::kMaxThreads);
    }
    route.threads = options.threads;
  }
  return {};
}

Result<route::Route> CudaCommunicator::route_of(std::size_t count, DataType type, ReduceOp op,
                                                const CallOptions& options, bool in_a_loop) const {
  route::Facts facts = this->facts(count, type, op);
  if (options.packet_fault != 0) return failure(Code::unsupported, "packet_fault: CPU ranks only");
  if (nranks() == 1) return route::all_reduce(facts);
  if (in_a_loop || options.delay_point != 0) {
    // There are no such kernels of the sentinel and of LL128: another protocol is chosen, and a forced one is
    // refused.
    if (options.protocol == route::Protocol::sentinel || options.protocol == route::Protocol::ll128) {
      return failure(Code::unsupported, "protocol: no kernels of %s %s", name_of(*options.protocol),
                     in_a_loop ? "with a loop of operations" : "with delays");
    }
    facts.packets = facts.lines = facts.sums = 0;
    facts.two_shot = false;
  }
  const bool own = in_a_loop || options.delay_point != 0 || options.grid != 0 || options.threads != 0 ||
                   options.first_slot != 0;
  if (own) {
    if (options.algorithm && algorithm::is_elsewhere(*options.algorithm)) {
      return failure(Code::unsupported, "algorithm: %s, with %s, is nearlight's kernels' affair alone",
                     name_of(*options.algorithm),
                     in_a_loop                  ? "a loop inside a kernel"
                     : options.delay_point != 0 ? "delays"
                     : options.first_slot != 0  ? "first_slot"
                     : options.grid != 0        ? "grid"
                                                : "threads");
    }
    facts = route::without_nccl(facts);
  }
  NL_TRY_ASSIGN(route::Route route, route_of_call(facts, options));
  if (algorithm::is_elsewhere(route.algorithm)) return route;
  route.held = options.delay_point != 0 ? 1 : std::max(1u, route.held);
  NL_TRY(apply_shape(options, route));
  if (route.algorithm == route::Algorithm::one_shot)
    route.first_region = placement_.first_region(route.protocol, route.grid);
  if (route.protocol == route::Protocol::ll && route.threads * route.held > layout_.slots) {
    return failure(Code::invalid_argument,
                   "threads: %u threads of %u packs need more than the %u slots of a region", route.threads,
                   route.held, layout_.slots);
  }
  if (route.protocol == route::Protocol::ll &&
      (options.first_slot % 8 != 0 || options.first_slot > layout_.slots - route.threads * route.held)) {
    return failure(Code::invalid_argument,
                   "first_slot: %u is not a multiple of 8 that leaves %u of the %u slots of a region",
                   options.first_slot, route.threads * route.held, layout_.slots);
  }
  route.run_threads = route::threads_that_run(facts, route);
  return route;
}

algorithm::cuda::LaunchShape CudaCommunicator::shape_of(const route::Route& route, DataType type, ReduceOp op,
                                                        const CallOptions& options) const {
  algorithm::cuda::LaunchShape shape{type,       op,         route.algorithm, route.protocol,
                                     route.held, route.grid, route.threads};
  shape.delayed = options.delay_point != 0;
  shape.first_region = route.first_region;
  shape.traced = tracer_.has_value() && !options.untraced;
  return shape;
}

algorithm::cuda::AllReduceArgs CudaCommunicator::args_of(const void* send, void* recv, std::size_t count,
                                                         const Reduction& op,
                                                         const CallOptions& options) const {
  auto args = args_of_region(Collective::all_reduce);
  args.first_slot = options.first_slot;
  args.delay_point = options.delay_point;
  args.delay_ns = options.delay_ns;
  args.send = send;
  args.recv = recv;
  args.count = count;
  args.op = op.op;
  args.factor = op.factor ? op.factor->bits : 0;
  return args;
}

algorithm::cuda::AllReduceArgs CudaCommunicator::args_of_region(Collective collective) const {
  algorithm::cuda::AllReduceArgs args{};
  args.regions = heap_->view().base + heap_offset_;
  args.stride = heap_->view().stride;
  args.region_bytes = layout_.region_bytes();
  args.rank = rank_;
  args.nranks = layout_.nranks;
  args.slots = layout_.slots;
  args.cells = layout_.cells;
  args.packets = layout_.packets;
  args.wide = layout_.wide;
  args.sums = layout_.sums;
  control_->name_in(args);
  args.timeout_ns = static_cast<std::uint64_t>(timeout_.count());
  args.collective = static_cast<std::uint32_t>(collective);
  args.late = early_launch() ? 0 : 1;
  return args;
}

Status CudaCommunicator::barrier(Stream stream) {
  const NvtxRange range("barrier", 0);
  calls_.begin(Collective::barrier, 0, DataType::i8, ReduceOp::sum);
  bool capturing = false;
  Status outcome = enqueue_barrier(stream, capturing);
  return calls_.end(std::move(outcome), capturing);
}

Status CudaCommunicator::enqueue_barrier(Stream stream_pointer, bool& capturing) {
  const route::Algorithm way = this->way();
  if (own_way_failed()) NL_TRY(may_go_elsewhere(way));
  if (nranks() == 1) return {};
  const DeviceGuard guard(device_);
  NL_TRY(guard.status());
  const auto stream = static_cast<cudaStream_t>(stream_pointer);
  NL_TRY(arguments_.check_stream(stream));
  NL_TRY_ASSIGN(capturing, CudaControl::retain_for_capture(control_, stream));
  if (check_) NL_TRY(compare_calls({Collective::barrier, 0, DataType::i8, ReduceOp::sum}, stream, capturing));
  if (algorithm::is_elsewhere(way)) return barrier_elsewhere(way, stream, capturing);
  return launched(algorithm::cuda::launch_barrier(args_of_region(Collective::barrier), stream), stream,
                  capturing);
}

Status CudaCommunicator::all_reduce(const void* send, void* recv, std::size_t count, DataType type,
                                    const Reduction& op, Stream stream, const CallOptions& options) {
  const NvtxRange range("all_reduce", count * size_of(type));
  calls_.begin(Collective::all_reduce, count, type, op.op);
  bool capturing = false;
  Status outcome = enqueue_all_reduce(send, recv, count, type, op, stream, options, capturing);
  return calls_.end(std::move(outcome), capturing);
}

Status CudaCommunicator::enqueue_all_reduce(const void* send, void* recv, std::size_t count, DataType type,
                                            const Reduction& op, Stream stream_pointer,
                                            const CallOptions& options, bool& capturing) {
  const bool own_way_failed = this->own_way_failed();
  if (own_way_failed) NL_TRY(may_go_elsewhere(options.algorithm.value_or(way())));
  if (count == 0) return {};
  NL_TRY(check_buffers(send, recv, count, type, op, may_overlap(options)));
  // The kernel belongs on this rank's GPU, whichever is current; stream 0 means that GPU's.
  const DeviceGuard guard(device_);
  NL_TRY(guard.status());
  const auto stream = static_cast<cudaStream_t>(stream_pointer);
  NL_TRY(arguments_.check(send, count * size_of(type), recv, count * size_of(type), stream));
  if (nranks() == 1) return enqueue_alone(send, recv, count, type, op, stream, capturing);
  NL_TRY_ASSIGN(const route::Route route, route_of(count, type, op.op, options, false));
  // A call that only kernels of our own can make, on the way elsewhere.
  if (own_way_failed && !algorithm::is_elsewhere(route.algorithm)) return status();
  calls_.take(route.algorithm, route.protocol);
  route_log_.note(Collective::all_reduce, count, type, op.op, nranks(), route);
  NL_TRY_ASSIGN(capturing, CudaControl::retain_for_capture(control_, stream));
  if (check_) {
    NL_TRY(compare_calls(
        {.collective = Collective::all_reduce, .count = count, .type = type, .op = op.op, .options = options},
        stream, capturing));
  }
  if (route.algorithm == route::Algorithm::nccl)
    return hand_over(send, recv, count, type, op, stream, capturing);
  if (route.algorithm == route::Algorithm::staged)
    return stage(send, recv, count, type, op, stream, capturing);
  return launched(algorithm::cuda::launch(args_of(send, recv, count, op, options),
                                          shape_of(route, type, op.op, options), stream),
                  stream, capturing);
}

Status CudaCommunicator::compare_calls(Call call, cudaStream_t stream, bool capturing) {
  call.path = path_.load(std::memory_order_relaxed);
  call.captured = capturing;
  // NCCL's exchange asks CUDA questions that a capture forbids in its stricter modes.
  const RelaxedCapture relaxed;
  NL_TRY(relaxed.status());
  const std::uint64_t number = compared_++;
  if (ledger_ != nullptr) {
    NL_TRY(ledger_->post(rank_, number, call));
  } else if (const Status same = check_calls_agree(*exchange_, call, number, Deadline::after(timeout_));
             !same.ok()) {
    // An exchange that failed stays failed: so does the communicator, or its next call would run unchecked.
    if (same.code() != Code::invalid_usage) stop(same, -1);
    return same;
  }
  if (capturing) return {};
  const Status ordered = stream_order_.before(stream, rank_);
  if (!ordered.ok()) stop(ordered, -1);  // the others take this call for made
  return ordered;
}

Status CudaCommunicator::launched(Status outcome, cudaStream_t stream, bool capturing) {
  if (check_ && outcome.ok() && !capturing) outcome = stream_order_.after(stream);
  // The peers have begun an epoch that this rank never will: its next call would be taken for this one. A
  // capture that is spoilt never runs.
  if (outcome.code() == Code::cuda_error && !capturing) stop_own_way(outcome);
  return outcome;
}

Status CudaCommunicator::all_reduce_loop(const void* send, void* recv, std::size_t count, DataType type,
                                         const Reduction& op, const LoopPlan& plan,
                                         std::vector<double>& op_ns, Stream stream_pointer,
                                         const CallOptions& options) {
  if (own_way_failed()) return status();
  if (nranks() == 1) return failure(Code::invalid_usage, "a loop of one rank has nothing to time");
  NL_TRY(check_buffers(send, recv, count, type, op));
  if (!algorithm::has_own_code(type, op.op)) {
    return failure(Code::unsupported, "op: no loop inside a kernel for %s %s; there are those of %s",
                   name_of(type), name_of(op.op), algorithm::kOwnCode);
  }
  const auto stream = static_cast<cudaStream_t>(stream_pointer);
  const DeviceGuard guard(device_);
  NL_TRY(guard.status());
  NL_TRY_ASSIGN(const route::Route route, route_of(count, type, op.op, options, true));
  auto shape = shape_of(route, type, op.op, options);
  shape.loop = true;
  shape.held = 1;
  if (plan.sm.has_value()) {
    if (shape.grid != 1)
      return failure(Code::invalid_argument, "plan: an SM is given, but the operation takes %u CTAs",
                     shape.grid);
    shape.pinned = true;
  }
  const std::size_t per_cta = algorithm::cuda::loop_clocks(plan.samples);
  // One word more: pinned CTAs take it.
  std::vector<std::uint64_t> clocks(shape.grid * per_cta + 1);
  const std::size_t clock_bytes = clocks.size() * sizeof clocks[0];
  DeviceMemory device_clocks;
  auto args = args_of(send, recv, count, op, options);
  if (options.instead != nullptr) shape.loops = options.instead->loops;
  const auto prepare = [&]() -> Status {
    NL_TRY(device_clocks.allocate(clock_bytes));
    NL_TRY_CUDA(cudaMemset(device_clocks.get(), 0, clock_bytes));
    NL_TRY_CUDA(cudaStreamSynchronize(cudaStreamLegacy));
    return shape.loops != nullptr ? algorithm::cuda::load(args, shape) : Status();
  };
  // Nobody launches before all have allocated: an allocation may wait for the kernels that already run.
  NL_TRY(agree(*exchange_, prepare(), Deadline::after(timeout_)));
  args.samples = plan.samples;
  args.chain = plan.chain;
  args.clocks = static_cast<std::uint64_t*>(device_clocks.get());
  args.pinned = shape.pinned ? 1 : 0;
  args.sm = plan.sm.value_or(0);
  args.taken = reinterpret_cast<std::uint32_t*>(args.clocks + clocks.size() - 1);
  const auto run = [&]() -> Status {
    NL_TRY(algorithm::cuda::launch(args, shape, stream));
    NL_TRY_CUDA(cudaStreamSynchronize(stream));
    NL_TRY_CUDA(cudaMemcpy(clocks.data(), device_clocks.get(), clock_bytes, cudaMemcpyDeviceToHost));
    return status();
  };
  const Status outcome = run();
  // To free may wait for the kernels that run, too: a peer's next one, which may wait for ours.
  device_clocks.reset();
  NL_TRY(agree(*exchange_, outcome, Deadline::after(timeout_)));
  if (shape.pinned && clocks.back() == 0) {
    return failure(Code::invalid_usage, "plan: no CTA landed on SM %u: busy, or there is none of that number",
                   args.sm);
  }
  op_ns.assign(plan.samples, 0.0);
  for (std::uint32_t cta = 0; cta < shape.grid; ++cta) {
    const std::uint64_t* const cycle = &clocks[cta * per_cta];
    const double cycles = static_cast<double>(cycle[plan.samples] - cycle[0]) * plan.chain;
    const double ns = static_cast<double>(cycle[plan.samples + 2] - cycle[plan.samples + 1]);
    for (std::uint32_t i = 0; i < plan.samples; ++i) {
      op_ns[i] = std::max(op_ns[i], static_cast<double>(cycle[i + 1] - cycle[i]) * ns / cycles);
    }
  }
  return {};
}

Status CudaCommunicator::status() const {
  const auto known = fault();
  return known ? known->status : Status();
}

std::optional<Fault> CudaCommunicator::fault() const {
  std::optional<Fault> fault;
  // A reset clears what the host sees only as a whole, and the words of health: none are written over those
  // of a rank that is well again.
  stop_note_.look([&](const StopNote::Reason& reason) {
    if (control_->has_fault()) {
      fault = describe(*control_->record(), reason.status, timeout_);
      // A wait that was ended because a peer is gone may have been for another one.
      if (fault->status.code() == Code::remote_error) fault->peer = reason.peer;
    } else if (!reason.status.ok()) {
      fault.emplace();
      fault->status = reason.status;
      fault->rank = rank_;
      fault->peer = reason.peer;
    } else if (staged_ != nullptr) {
      fault = staged_->fault();
    }
    if (!fault) return;
    health_.fail(fault->status.code(), fault->peer);
    if (control_->has_fault()) fault->status = with_health(std::move(fault->status), fault->peer, health_);
  });
  // The service's thread may take its time, this one may not. A staged call's too, whose CPU tells nobody.
  if (fault && fault->status.code() == Code::timeout && dump_service_ == nullptr) tell_once();
  return fault;
}

void CudaCommunicator::tell_once() const {
  if (!told_.exchange(true)) {
    tell_of_timeout(rank_, calls_, [this] { return dump(); });
  }
}

std::string CudaCommunicator::dump() const {
  std::optional<protocol::FaultRecord> record;
  stop_note_.look([&](const StopNote::Reason&) {
    if (control_->has_fault()) record = *control_->record();
  });
  const auto fetch = [this](std::span<const Piece> pieces) {
    if (reader_ != nullptr) return reader_->fetch(pieces, std::chrono::seconds(2));
    return failure(
        Code::invalid_usage,
        "on a GPU it is when NEARLIGHT_DUMP or NEARLIGHT_DUMP_DIR is set as the communicator is made");
  };
  return dump_text({rank_, nranks(), backend(), memory(), timeout_, status(), record, control_->states(),
                    regions_, heap_->view().base + heap_offset_, heap_->view().stride, layout_.region_bytes(),
                    layout_, &health_, fetch},
                   calls_);
}

void CudaCommunicator::abort() { stop(failure(Code::aborted, "rank %d was told to stop", rank_), -1); }

std::uint64_t CudaCommunicator::stop(Status reason, int peer) {
  return stop_note_.add(std::move(reason), peer, [&] {
    stopped_.store(true, std::memory_order_relaxed);
    control_->set_abort();
    if (staged_ != nullptr) staged_->stop();
  });
}

void CudaCommunicator::stop_own_way(Status reason) {
  stop_note_.add({std::move(reason), -1, false}, [&] {
    stopped_.store(true, std::memory_order_relaxed);
    control_->set_abort();
  });
}

}  // namespace nearlight::runtime
