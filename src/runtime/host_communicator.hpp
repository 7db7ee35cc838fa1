// The communicator of CPU ranks: each call runs the collective on the calling thread.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "algorithm/host/all_reduce.hpp"
#include "base/collective.hpp"
#include "memory/heap.hpp"
#include "runtime/call_check.hpp"
#include "runtime/channels.hpp"
#include "runtime/checks.hpp"
#include "runtime/communicator.hpp"
#include "runtime/dump_service.hpp"
#include "runtime/health.hpp"
#include "runtime/peer_watch.hpp"
#include "runtime/recovery.hpp"
#include "runtime/route_log.hpp"
#include "runtime/stop_note.hpp"
#include "runtime/tracer.hpp"

namespace nearlight::runtime {

class HostCommunicator final : public Communicator {
 public:
  ~HostCommunicator() override;
  static Result<std::unique_ptr<Communicator>> create(Exchange& exchange, std::shared_ptr<Exchange> owned,
                                                      const Options& options);
  // Of ranks that have a communicator already, which watches over this one too: it reads no variables, and
  // has no thread, trace or dump of its own and tells of no time-out. Sizes, epoch and offset are as in
  // `options`. `timeout` bounds each call as a whole, since somebody waits for it who has no more time.
  static Result<std::unique_ptr<HostCommunicator>> create_within(Exchange& exchange, const Options& options,
                                                                 std::chrono::nanoseconds timeout,
                                                                 Deadline deadline);
  // Words of health in its memory, which it leaves to the communicator that it is within.
  const HealthBoard& health() const { return health_; }

  int rank() const override { return heap_->view().rank; }
  int nranks() const override { return heap_->view().nranks; }
  const char* backend() const override { return "host"; }
  const char* memory() const override { return heap_->kind(); }
  Status all_reduce(const void* send, void* recv, std::size_t count, DataType type, const Reduction& op,
                    Stream stream, const CallOptions& options) override;
  Status collective(const CollectiveCall& call, Stream stream, const CallOptions& options) override;
  Result<route::Route> explain(const CollectiveCall& call, const CallOptions& options) const override;
  Status messages(std::span<const MessageCall> group, Stream stream, const CallOptions& options) override;
  Result<route::Route> explain_message(const MessageCall& message, const CallOptions& options) const override;
  Status fused(const FusedCall& call, Stream stream, const CallOptions& options) override;
  Result<route::FusedRoute> explain_fused(const FusedCall& call, const CallOptions& options) const override;
  Status gemv(const GemvCall& call, Stream stream, const CallOptions& options) override;
  Result<route::Route> explain_gemv(const GemvCall& call, const CallOptions& options) const override;
  Status barrier(Stream stream) override;
  route::Route explain_all_reduce(std::size_t count, DataType type, ReduceOp op) const override;
  Result<route::Route> explain_all_reduce(std::size_t count, DataType type, ReduceOp op,
                                          const CallOptions& options) const override;
  Status set_path(const std::string& path) override;
  Status add_span(trace::RankTrace::Span span) override;
  Status status() const override;
  std::optional<Fault> fault() const override;
  void abort() override;
  std::string dump() const override;
  probe::LineReport lines() const override { return {}; }
  Result<std::vector<std::uint32_t>> epochs() const override {
    return std::vector<std::uint32_t>{state_.epoch};
  }
  Status reset(std::optional<std::chrono::milliseconds> limit) override;
  Result<std::unique_ptr<Communicator>> shrink(std::span<const int> members,
                                               std::optional<std::chrono::milliseconds> limit) override;
  Result<protocol::ChannelMemory> make_channels(protocol::ChannelShape shape, std::uint32_t peers) override;
  Status free_channels(const char* own) override { return nearlight::runtime::free_channels(channels_, own); }
  std::size_t scratch_bytes() const override { return heap_->view().bytes; }

 private:
  HostCommunicator() = default;
  static Result<std::unique_ptr<HostCommunicator>> make(Exchange& exchange, std::shared_ptr<Exchange> owned,
                                                        const Options& options, const Settings& settings,
                                                        Deadline deadline);
  Status run_all_reduce(const void* send, void* recv, std::size_t count, DataType type, const Reduction& op,
                        Stream stream, const CallOptions& options);
  Status run_barrier(Stream stream);
  // reset(); with `stops` only where nobody has stopped it since stop_note_ had counted so many.
  Status reset_since(std::optional<std::chrono::milliseconds> limit, std::optional<std::uint64_t> stops);
  // Lets `time` pass, unless somebody stops it, as above: then the reason.
  Status pause(std::chrono::milliseconds time, std::uint64_t stops) const;
  // Makes a call with the retries there are. `attempt(first)`: the data of one attempt; after it comes a
  // barrier.
  Status run_with_retries(bool can_repeat, const std::function<Status(bool first)>& attempt);
  Status run_collective(const CollectiveCall& call, Stream stream, const CallOptions& options);
  Status run_messages(std::span<const MessageCall> group, Stream stream, const CallOptions& options);
  route::Facts message_facts(std::size_t count, DataType type) const;
  // This rank's memory and ends of pipes as before their first turn, which comes after `turn`.
  void rest_pipes(std::uint32_t turn);
  // Of every kind of OneWayCall, see one_way.hpp.
  template <class OneWay>
  Status one_way(const OneWay& call, Stream stream, const CallOptions& options);
  template <class OneWay>
  Status run_one_way(const OneWay& call, Stream stream, const CallOptions& options);
  route::Facts facts(std::size_t count, DataType type, ReduceOp op) const;
  // `peer`: the one that is gone, or -1. Returns how often it was stopped by now.
  std::uint64_t stop(Status reason, int peer);
  // At rest packets hold the sentinel.
  void empty_packets();
  // Check mode: all ranks are about to make this call.
  Status compare_calls(const Call& call);
  // Why this operation was given up.
  Status recorded_failure(Collective collective) const;
  Status own_outcome(Collective collective);
  // Of a call that begins now.
  protocol::Control<exec::HostSpace> control();
  bool failed() const {
    return std::atomic_ref(const_cast<std::uint32_t&>(valid_)).load(std::memory_order_acquire) != 0;
  }

  std::shared_ptr<Exchange> owned_exchange_;
  Exchange* exchange_ =
      nullptr;  // of the creation; in use after it in check mode and for recovery. Null: shrunk
  std::unique_ptr<memory::Heap> heap_;
  ChannelList channels_;
  protocol::RegionLayout layout_;
  std::size_t heap_offset_ = 0;
  std::chrono::nanoseconds timeout_{};
  Options options_;  // of the creation
  Survivors survivors_;
  bool check_ = false;
  RetryPolicy retry_;
  std::uint64_t retried_call_ = 0;  // calls with retries since the last reset of the program's
  bool deterministic_ = true;
  route::Table table_;
  std::atomic<std::uint64_t> path_{0};  // number_of(route::Forced): NEARLIGHT_FORCE_PATH, set_path()
  RouteLog route_log_;
  HealthBoard health_;
  bool within_ = false;         // another communicator, whose health it is
  std::uint64_t compared_ = 0;  // calls
  protocol::RegionState<exec::HostSpace> state_{};
  std::size_t pipes_at_ = 0;  // in the heap, behind the region
  std::array<algorithm::PipeState<exec::HostSpace>, protocol::kMaxRanks> pipe_ends_{};  // by peer
  // What a wait looks at and writes; atomics by atomic_ref, see protocol::Control.
  std::uint32_t abort_ = 0, claim_ = 0, valid_ = 0;
  protocol::FaultRecord record_{};
  StopNote stop_note_;             // why abort_ was set on purpose
  mutable std::mutex rest_mutex_;  // while a reset puts memory to rest that a dump may look at; the inner one
  std::optional<Tracer> tracer_;
  std::vector<trace::EpochTimes> ring_;  // with tracer_
  std::vector<trace::TurnTimes> turns_;  // likewise
  std::atomic<bool> told_{false};        // of a time-out, since the last reset
  std::unique_ptr<PeerWatch> watch_;     // last, with the next: their threads use the others
  std::unique_ptr<DumpService> dump_service_;
};

}  // namespace nearlight::runtime
