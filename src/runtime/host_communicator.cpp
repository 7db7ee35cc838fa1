#include "runtime/host_communicator.hpp"

#include <algorithm>
#include <cstring>
#include <thread>
#include <utility>

#include "algorithm/host/barrier.hpp"
#include "base/collective.hpp"
#include "base/log.hpp"
#include "base/variables.hpp"
#include "memory/shm_heap.hpp"
#include "runtime/call_route.hpp"
#include "runtime/checks.hpp"
#include "runtime/create.hpp"
#include "runtime/dump.hpp"
#include "runtime/nvtx_range.hpp"
#include "runtime/recovery.hpp"

namespace nearlight::runtime {

namespace {

constexpr std::uint32_t kDefaultSlots = 1024;    // 8 KiB of payload a source
constexpr std::uint32_t kDefaultPackets = 1024;  // 16 KiB of payload a source
constexpr std::uint32_t kDefaultLines = 128;     // 15 KiB of payload a source
constexpr std::uint32_t kDefaultChunkBytes = 64 * 1024;

Status check_group(const Exchange& exchange) {
  if (exchange.nranks() < 1 || exchange.nranks() > protocol::kMaxRanks) {
    return failure(Code::invalid_argument, "nranks: %d is not between 1 and %d", exchange.nranks(),
                   protocol::kMaxRanks);
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<Communicator>> HostCommunicator::create(Exchange& exchange,
                                                               std::shared_ptr<Exchange> owned,
                                                               const Options& options) {
  const Deadline deadline = create_deadline(options);
  NL_TRY(check_group(exchange));
  const route::Target target{false, "", exchange.nranks()};
  const auto settings = settings_of(options, &target);
  const auto answers_dumps = variables::read(variables::kDump);
  const auto folder = trace_folder(options.trace);
  const Status readable = settings.ok() ? answers_dumps.status() : settings.status();
  NL_TRY(agree(exchange, readable.ok() ? folder.status() : readable, deadline));
  NL_TRY(check_options_agree(exchange, options, *settings, deadline));
  NL_TRY_ASSIGN(auto comm, make(exchange, std::move(owned), options, *settings, deadline));
  if (*folder) {
    NL_TRY_ASSIGN(comm->tracer_, Tracer::start(exchange, **folder, "host", deadline));
    comm->ring_.resize(trace::kLinesOnCpu);
    comm->turns_.resize(trace::turn_rings(1, exchange.nranks()) * trace::kTurnLinesOnCpu);
  }
  comm->within_ = false;
  comm->calls_.mirror(comm->health_.call_word());
  comm->health_.set(Health::well);
  Status watching;
  if (const auto processes = exchange.processes(); processes.size() > 1) {
    auto watch = PeerWatch::start(processes, exchange.rank(), [raw = comm.get()](int peer, pid_t pid) {
      raw->stop(failure(Code::remote_error, "rank %d: its process %d has ended", peer, static_cast<int>(pid)),
                peer);
    });
    watching = watch.status();
    if (watch.ok()) comm->watch_ = std::move(*watch);
  }
  if (watching.ok() && *answers_dumps) {
    auto service = DumpService::start([raw = comm.get()] { return raw->dump(); });
    watching = service.status();
    if (service.ok()) comm->dump_service_ = std::move(*service);
  }
  // Nobody leaves before all are ready: a fast rank's first store must find the others' memory as it is at
  // rest.
  NL_TRY(agree(exchange, watching, deadline));
  return std::unique_ptr<Communicator>(std::move(comm));
}

Result<std::unique_ptr<HostCommunicator>> HostCommunicator::create_within(Exchange& exchange,
                                                                          const Options& options,
                                                                          std::chrono::nanoseconds timeout,
                                                                          Deadline deadline) {
  Settings settings{};
  settings.timeout = timeout;
  settings.deterministic = true;
  NL_TRY_ASSIGN(auto comm, make(exchange, nullptr, options, settings, deadline));
  NL_TRY(agree(exchange, {}, deadline));
  return comm;
}

Result<std::unique_ptr<HostCommunicator>> HostCommunicator::make(Exchange& exchange,
                                                                 std::shared_ptr<Exchange> owned,
                                                                 const Options& options,
                                                                 const Settings& settings,
                                                                 Deadline deadline) {
  const route::Target target{false, "", exchange.nranks()};
  std::unique_ptr<HostCommunicator> comm(new HostCommunicator);
  comm->owned_exchange_ = std::move(owned);
  comm->exchange_ = &exchange;
  comm->timeout_ = settings.timeout;
  comm->options_ = options;
  comm->survivors_ = Survivors(exchange);
  comm->check_ = settings.check;
  comm->retry_ = settings.retry;
  comm->deterministic_ = settings.deterministic;
  comm->table_ = settings.steering.table.value_or(route::shipped_table(target));
  comm->path_ = number_of(settings.steering.forced);
  comm->route_log_ = RouteLog(settings.steering.log && exchange.rank() == 0);
  comm->route_log_.begin(comm->table_, target, settings.steering.left_aside);
  comm->heap_offset_ = options.heap_offset;
  comm->layout_ = {exchange.nranks(), options.slots != 0 ? options.slots : kDefaultSlots,
                   (options.chunk_bytes != 0 ? options.chunk_bytes : kDefaultChunkBytes) / 16,
                   options.packets != 0 ? options.packets : kDefaultPackets,
                   options.lines != 0 ? options.lines : kDefaultLines};
  if (!settings.deterministic) comm->layout_.sums = comm->layout_.wide;
  comm->state_.epoch = options.initial_epoch;
  comm->pipes_at_ = options.heap_offset + comm->layout_.region_bytes();
  const std::size_t region_end = comm->pipes_at_ + algorithm::pipe_bytes(pipe_layout(comm->layout_));
  auto heap = memory::create_shm_heap(exchange, region_end + sizeof(HealthWords), deadline);
  NL_TRY(heap.status().with_context(scratch_in_words(1, comm->layout_)));
  comm->heap_ = std::move(*heap);
  comm->empty_packets();
  comm->rest_pipes(options.initial_epoch);
  comm->health_ = HealthBoard(comm->heap_->view(), region_end);
  comm->within_ = true;
  return comm;
}

HostCommunicator::~HostCommunicator() {
  if (!within_ && heap_ != nullptr) health_.set(Health::left);
  // Half a communicator has not traced anything.
  if (!tracer_ || !tracer_->writes() || heap_ == nullptr) return;
  trace::append(tracer_->ranks(), 0, ring_);
  trace::append(tracer_->ranks(), 1, turns_);
  tracer_->write();
}

Status HostCommunicator::add_span(trace::RankTrace::Span span) {
  NL_TRY(check_span(span, rank(), nranks()));
  return tracer_ && tracer_->writes() ? tracer_->add(std::move(span)) : Status();
}

void HostCommunicator::empty_packets() {
  std::memset(heap_->view().mine() + heap_offset_ + layout_.packets_at(), 0xff, layout_.packets_bytes());
}

Status HostCommunicator::reset(std::optional<std::chrono::milliseconds> limit) {
  NL_TRY(reset_since(limit, std::nullopt));
  // The ranks need not have made equally many calls that failed at once.
  retried_call_ = 0;
  return {};
}

Status HostCommunicator::reset_since(std::optional<std::chrono::milliseconds> limit,
                                     std::optional<std::uint64_t> stops) {
  NL_TRY(check_limit("limit", limit.value_or(options_.create_timeout)));
  const Deadline deadline = Deadline::after(limit.value_or(options_.create_timeout));
  NL_TRY(survivors_.check_all(nranks()));
  // Failed from here on, unless all goes well; later calls must not run into the middle of it.
  const std::uint64_t count =
      stop(failure(Code::aborted, "a reset of rank %d has not been completed", rank()), -1);
  if (stops && count != *stops + 1) return stop_note_.first().status;
  if (!within_) health_.set(Health::resetting);
  std::uint32_t epoch = 0;
  const ResetSteps steps{
      // A call runs on the thread that made it, and no other may be under way: what it stored is done.
      .end_own = [](Deadline) { return Status(); },
      .last_epoch = [&]() -> Result<std::uint32_t> { return state_.epoch; },
      .rest =
          [&](std::uint32_t after) {
            const std::lock_guard lock(rest_mutex_);
            std::memset(heap_->view().mine() + heap_offset_, 0, layout_.region_bytes());
            empty_packets();
            rest_pipes(0);
            epoch = after;
            return retire_channels(channels_);
          }};
  NL_TRY(reset_together(*exchange_, steps, deadline));
  return stop_note_.forget(count, [&] {
    {
      const std::lock_guard lock(rest_mutex_);
      state_ = {};
      state_.epoch = epoch;
    }
    compared_ = 0;
    told_.store(false, std::memory_order_relaxed);
    health_.forget();
    if (!within_) health_.set(Health::well);
    std::atomic_ref(abort_).store(0, std::memory_order_relaxed);
    std::atomic_ref(claim_).store(0, std::memory_order_relaxed);
    std::atomic_ref(valid_).store(0, std::memory_order_release);
  });
}

Result<std::unique_ptr<Communicator>> HostCommunicator::shrink(
    std::span<const int> members, std::optional<std::chrono::milliseconds> limit) {
  NL_TRY(check_limit("limit", limit.value_or(options_.create_timeout)));
  const Deadline deadline = Deadline::after(limit.value_or(options_.create_timeout));
  NL_TRY(check_members(members, rank(), nranks()));
  NL_TRY(survivors_.check_shrink(exchange_));
  stop(failure(Code::aborted, "rank %d goes on in a smaller communicator", rank()), -1);
  NL_TRY(survivors_.regroup(*exchange_, members, deadline));
  Options options = options_;
  options.create_timeout = deadline.left_or_1_ms();
  NL_TRY_ASSIGN(auto smaller, create(*exchange_, owned_exchange_, options));
  exchange_ = nullptr;
  owned_exchange_.reset();
  return smaller;
}

route::Facts HostCommunicator::facts(std::size_t count, DataType type, ReduceOp op) const {
  return {.gpu = false,
          .nranks = nranks(),
          .count = count,
          .type = type,
          .op = op,
          .regions = 1,
          .slots = layout_.slots,
          .cells = layout_.cells,
          .packets = layout_.packets,
          .table = &table_,
          .forced = forced_of(path_.load(std::memory_order_relaxed)),
          .lines = layout_.wide,
          .sums = layout_.sums,
          .deterministic = deterministic_};
}

Status HostCommunicator::set_path(const std::string& path) {
  NL_TRY_ASSIGN(const route::Forced forced, forced_of(path, "path"));
  NL_TRY(check_forced(forced, false, "path"));
  path_.store(number_of(forced), std::memory_order_relaxed);
  return {};
}

route::Route HostCommunicator::explain_all_reduce(std::size_t count, DataType type, ReduceOp op) const {
  return route::all_reduce(facts(count, type, op));
}

Result<route::Route> HostCommunicator::explain_all_reduce(std::size_t count, DataType type, ReduceOp op,
                                                          const CallOptions& options) const {
  return route_of_call(facts(count, type, op), options);
}

protocol::Control<exec::HostSpace> HostCommunicator::control() {
  const auto limit_ns = static_cast<std::uint64_t>(timeout_.count());
  const std::uint64_t end_ns = within_ ? exec::HostSpace::now_ns() + limit_ns : 0;
  return {&abort_, &claim_, &valid_, &record_, limit_ns, end_ns};
}

Status HostCommunicator::all_reduce(const void* send, void* recv, std::size_t count, DataType type,
                                    const Reduction& op, Stream stream, const CallOptions& options) {
  const NvtxRange range("all_reduce", count * size_of(type));
  calls_.begin(Collective::all_reduce, count, type, op.op);
  if (retry_.attempts == 0 || nranks() == 1)
    return calls_.end(run_all_reduce(send, recv, count, type, op, stream, options));
  return calls_.end(run_with_retries(send != recv && !options.may_overlap, [&](bool first) {
    CallOptions without_hooks = options;
    if (!first) without_hooks.delay_ns = without_hooks.packet_fault = 0;
    return run_all_reduce(send, recv, count, type, op, stream, without_hooks);
  }));
}

Status HostCommunicator::run_all_reduce(const void* send, void* recv, std::size_t count, DataType type,
                                        const Reduction& op, Stream stream, const CallOptions& options) {
  if (failed()) return status();
  NL_TRY(check_no_stream(stream));
  if (count != 0) NL_TRY(check_buffers(send, recv, count, type, op, options.may_overlap && !check_));
  if (check_)
    NL_TRY(compare_calls(
        {Collective::all_reduce, count, type, op.op, path_.load(std::memory_order_relaxed), options}));
  if (count == 0) return {};
  if ((options.delay_point != 0 || options.packet_fault != 0) && !algorithm::has_own_code(type, op.op)) {
    return failure(Code::invalid_argument, "%s: not for %s %s, only for %s",
                   options.delay_point != 0 ? "delay_point" : "packet_fault", name_of(type), name_of(op.op),
                   algorithm::kOwnCode);
  }
  NL_TRY_ASSIGN(const route::Route route, route_of_call(facts(count, type, op.op), options));
  calls_.take(route.algorithm, route.protocol);
  if (nranks() == 1) {
    if (op.op == ReduceOp::premul_sum) {
      algorithm::host::multiply_alone(type, send, recv, count, op.factor->bits);
      return {};
    }
    if (recv != send) std::memmove(recv, send, count * size_of(type));  // they may overlap (CallOptions)
    return {};
  }
  route_log_.note(Collective::all_reduce, count, type, op.op, nranks(), route);
  algorithm::host::AllReduceCall call{
      .region = heap_->view().base + heap_offset_,
      .stride = heap_->view().stride,
      .rank = rank(),
      .layout = layout_,
      .state = &state_,
      .control = control(),
      .collective = static_cast<std::uint32_t>(Collective::all_reduce),
      .type = type,
      .op = op.op,
      .algorithm = route.algorithm,
      .protocol = route.protocol,
      .send = send,
      .recv = recv,
      .count = count,
      .factor = op.factor ? op.factor->bits : 0,
      .trace = tracer_ && !options.untraced ? ring_.data() : nullptr,
      .delay = {static_cast<algorithm::DelayPoint>(options.delay_point), options.delay_ns},
      .packet_fault = {static_cast<algorithm::host::PacketFault::Kind>(options.packet_fault),
                       options.faulty_packet}};
  const auto own = algorithm::host::all_reduce;
  (options.instead != nullptr && options.instead->on_host != nullptr ? options.instead->on_host : own)(call);
  return own_outcome(Collective::all_reduce);
}

Status HostCommunicator::barrier(Stream stream) {
  const NvtxRange range("barrier", 0);
  calls_.begin(Collective::barrier, 0, DataType::i8, ReduceOp::sum);
  if (retry_.attempts == 0 || nranks() == 1) return calls_.end(run_barrier(stream));
  // Nothing but the barrier that every such call ends with.
  return calls_.end(run_with_retries(true, [&](bool) { return check_no_stream(stream); }));
}

Status HostCommunicator::run_barrier(Stream stream) {
  if (failed()) return status();
  NL_TRY(check_no_stream(stream));
  if (check_)
    NL_TRY(compare_calls(
        {Collective::barrier, 0, DataType::i8, ReduceOp::sum, path_.load(std::memory_order_relaxed)}));
  if (nranks() == 1) return {};
  algorithm::host::barrier({.region = heap_->view().base + heap_offset_,
                            .stride = heap_->view().stride,
                            .rank = rank(),
                            .layout = layout_,
                            .state = &state_,
                            .control = control(),
                            .collective = static_cast<std::uint32_t>(Collective::barrier),
                            .trace = tracer_ ? ring_.data() : nullptr});
  return own_outcome(Collective::barrier);
}

Status HostCommunicator::run_with_retries(bool can_repeat, const std::function<Status(bool first)>& attempt) {
  // Read before it is known to be well, so that no stop falls in between.
  std::uint64_t stops = stop_note_.count();
  // What could not be healed before, the program alone may reset.
  if (failed()) return status();
  ++retried_call_;
  for (std::uint32_t number = 0;; ++number) {
    Status outcome = attempt(number == 0);
    const bool done = outcome.ok();
    if (done) outcome = run_barrier(nullptr);
    // An argument that is wrong: no call has been made, and the other ranks count none.
    if (!outcome.ok() && !failed()) --retried_call_;
    // A rank that is gone, or an abort, is nothing that a reset could heal; neither is an argument.
    if (outcome.ok() || outcome.code() != Code::timeout || number >= retry_.attempts) return outcome;
    log::warn("rank " + std::to_string(rank()) + " makes call " + std::to_string(retried_call_) + " again (" +
              std::to_string(number + 1) + " of " + std::to_string(retry_.attempts) + "): " + outcome.text());
    NL_TRY(pause(retry_.wait_before(number), stops));
    // The others notice within the limits of their waits, one for the data and one for the barrier, and then
    // pause; a rank that is in the call after it may be at another attempt than this one.
    const auto limit = std::chrono::ceil<std::chrono::milliseconds>(3 * timeout_) + std::chrono::seconds(1) +
                       retry_.wait_before(retry_.attempts);
    const Deadline deadline = Deadline::after(limit);
    NL_TRY(reset_since(limit, stops).with_context("making a call again (" + outcome.text() + ")"));
    ++stops;  // the reset's own
    const RetryVote mine{retried_call_, done ? 1u : 0u, can_repeat ? 1u : 0u};
    auto votes = gather_values(*exchange_, mine, deadline);
    const Verdict verdict = votes.ok() ? judge(mine, *votes) : Verdict::give_up;
    if (verdict == Verdict::finished) return {};
    if (verdict == Verdict::give_up) {
      // As failed as without retries, on every rank.
      stop(votes.ok() ? outcome : votes.status(), -1);
      return outcome;
    }
  }
}

Status HostCommunicator::pause(std::chrono::milliseconds time, std::uint64_t stops) const {
  constexpr std::chrono::milliseconds kSlice{5};
  for (const Deadline end = Deadline::after(time); !end.passed();) {
    if (stop_note_.count() != stops) return stop_note_.first().status;
    std::this_thread::sleep_for(std::min(kSlice, end.left_or_1_ms()));
  }
  return {};
}

Status HostCommunicator::own_outcome(Collective collective) {
  // Only this operation's own failure counts here: a peer that ended after it sent everything has not spoilt
  // the result.
  if (!within_) health_.set_epoch(state_.epoch);
  const bool gave_up = exec::HostSpace::load<exec::Order::relaxed, exec::Scope::device>(state_.failed) != 0;
  if (!gave_up) return {};
  Status failed = recorded_failure(collective);
  if (!within_ && failed.code() == Code::timeout && !told_.exchange(true)) {
    tell_of_timeout(rank(), calls_, [this] { return dump(); });
  }
  return failed;
}

std::string HostCommunicator::dump() const {
  std::optional<protocol::FaultRecord> record;
  // A reset clears it as a whole, and likewise what is fetched.
  stop_note_.look([&](const StopNote::Reason&) {
    if (failed()) record = record_;
  });
  const auto fetch = [this](std::span<const Piece> pieces) {
    const std::lock_guard lock(rest_mutex_);
    return fetch_from_host(pieces);
  };
  return dump_text({rank(), nranks(), backend(), memory(), timeout_, status(), record, &state_, 1,
                    heap_->view().base + heap_offset_, heap_->view().stride, layout_.region_bytes(), layout_,
                    &health_, fetch},
                   calls_);
}

Status HostCommunicator::compare_calls(const Call& call) {
  const Status same = check_calls_agree(*exchange_, call, compared_, Deadline::after(timeout_));
  ++compared_;
  // An exchange that failed stays failed: so does the communicator, or its next call would run unchecked.
  if (!same.ok() && same.code() != Code::invalid_usage) stop(same, -1);
  return same;
}

Status HostCommunicator::recorded_failure(Collective collective) const {
  // The record may be another thread's, which has taken the right to write it and is not done yet.
  for (const Deadline deadline = Deadline::after_ms(1000); !failed() && !deadline.passed();) {
    std::this_thread::yield();
  }
  if (failed()) return status();
  return failure(Code::aborted, "%s on rank %d was given up; the reason is not recorded yet",
                 name_of(collective), rank());
}

Status HostCommunicator::status() const {
  const auto known = fault();
  return known ? known->status : Status();
}

std::optional<Fault> HostCommunicator::fault() const {
  if (!failed()) return std::nullopt;
  std::optional<Fault> fault;
  // A reset clears it as a whole, and its words of health: none are written over those of one that is well.
  stop_note_.look([&](const StopNote::Reason& reason) {
    if (!failed()) return;  // a reset has come in between
    fault = describe(record_, reason.status, timeout_, within_);
    // A wait that was ended because a peer is gone may have been for another one.
    if (fault->status.code() == Code::remote_error) fault->peer = reason.peer;
    if (!within_) health_.fail(fault->status.code(), fault->peer);
    fault->status = with_health(std::move(fault->status), fault->peer, health_);
  });
  return fault;
}

void HostCommunicator::abort() { stop(failure(Code::aborted, "rank %d was told to stop", rank()), -1); }

std::uint64_t HostCommunicator::stop(Status reason, int peer) {
  // No record yet when nobody waits: make one, so that later calls fail at once.
  protocol::FaultRecord record{};
  record.kind = static_cast<std::uint32_t>(protocol::Wait::aborted);
  record.rank = rank();
  record.peer = peer;
  return stop_note_.add(std::move(reason), peer, [&] {
    protocol::report_fault<exec::HostSpace>(
        {&abort_, &claim_, &valid_, &record_, static_cast<std::uint64_t>(timeout_.count())}, record);
  });
}

Result<std::unique_ptr<Communicator>> create_host(std::unique_ptr<Exchange> exchange,
                                                  const Options& options) {
  if (exchange == nullptr) return failure(Code::invalid_argument, "exchange is null");
  Exchange& borrowed = *exchange;
  return HostCommunicator::create(borrowed, std::move(exchange), options);
}

Result<std::unique_ptr<Communicator>> create_host(Exchange& exchange, const Options& options) {
  return HostCommunicator::create(exchange, nullptr, options);
}

}  // namespace nearlight::runtime
