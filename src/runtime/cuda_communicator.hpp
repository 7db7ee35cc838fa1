// The communicator of GPU ranks: each call enqueues one kernel.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <nearlight/detail/protocol/region.hpp>
#include "base/collective.hpp"
#include "memory/heap.hpp"
#include "route/placement.hpp"
#include "runtime/call_check.hpp"
#include "runtime/channels.hpp"
#include "runtime/communicator.hpp"
#include "runtime/cuda_arguments.hpp"
#include "runtime/cuda_control.hpp"
#include "runtime/cuda_dump.hpp"
#include "runtime/dump_service.hpp"
#include "runtime/early_launch.hpp"
#include "runtime/fallback.hpp"
#include "runtime/kernel_loop.hpp"
#include "runtime/peer_watch.hpp"
#include "runtime/recovery.hpp"
#include "runtime/route_log.hpp"
#include "runtime/staged_path.hpp"
#include "runtime/stop_note.hpp"
#include "runtime/stream_order.hpp"
#include "runtime/tracer.hpp"

namespace nearlight::runtime {

class CudaCommunicator final : public Communicator {
 public:
  // Makes the heap once its size is known; collective.
  using MakeHeap = Result<std::unique_ptr<memory::Heap>> (*)(void* context, Exchange& exchange, int device,
                                                             std::size_t bytes, Deadline deadline);
  // Where the heap comes from.
  struct HeapPlan {
    MakeHeap make = nullptr;
    void* context = nullptr;
    bool one_rank_per_gpu = false;  // two ranks on one GPU are unsupported
    bool by_nvlink = false;         // GPUs that PCIe connects are unsupported
    std::string reason = {};        // of memory_reason()
    // When creation must be done, where that is not Options::create_timeout from now on.
    std::optional<Deadline> deadline = {};
  };

  // `fallback`: who takes what is handed over, or null.
  static Result<std::unique_ptr<Communicator>> create(std::shared_ptr<Exchange> exchange, int device,
                                                      const HeapPlan& plan, const Options& options,
                                                      std::unique_ptr<Fallback> fallback = nullptr);
  ~CudaCommunicator() override;

  int rank() const override { return rank_; }
  int nranks() const override { return layout_.nranks; }
  const char* backend() const override { return "cuda"; }
  const char* memory() const override { return heap_->kind(); }
  const char* memory_reason() const override { return wish_.heap.reason.c_str(); }
  Status all_reduce(const void* send, void* recv, std::size_t count, DataType type, const Reduction& op,
                    Stream stream, const CallOptions& options) override;
  Status collective(const CollectiveCall& call, Stream stream, const CallOptions& options) override;
  Result<route::Route> explain(const CollectiveCall& call, const CallOptions& options) const override;
  Status messages(std::span<const MessageCall> group, Stream stream, const CallOptions& options) override;
  Status begin_messages(std::span<const MessageCall> group, Stream stream, Rest& rest) override;
  int device() const override { return device_; }
  Result<route::Route> explain_message(const MessageCall& message, const CallOptions& options) const override;
  Status fused(const FusedCall& call, Stream stream, const CallOptions& options) override;
  Result<route::FusedRoute> explain_fused(const FusedCall& call, const CallOptions& options) const override;
  Status gemv(const GemvCall& call, Stream stream, const CallOptions& options) override;
  Result<route::Route> explain_gemv(const GemvCall& call, const CallOptions& options) const override;
  Status barrier(Stream stream) override;
  route::Route explain_all_reduce(std::size_t count, DataType type, ReduceOp op) const override;
  Result<route::Route> explain_all_reduce(std::size_t count, DataType type, ReduceOp op,
                                          const CallOptions& options) const override {
    return route_of(count, type, op, options, false);
  }
  Status set_path(const std::string& path) override;
  Status add_span(trace::RankTrace::Span span) override;
  Status status() const override;
  std::optional<Fault> fault() const override;
  void abort() override;
  std::string dump() const override;
  probe::LineReport lines() const override { return lines_; }
  Result<std::vector<std::uint32_t>> epochs() const override { return control_->epochs(regions_); }
  Status reset(std::optional<std::chrono::milliseconds> limit) override;
  Result<std::unique_ptr<Communicator>> shrink(std::span<const int> members,
                                               std::optional<std::chrono::milliseconds> limit) override;
  Result<protocol::ChannelMemory> make_channels(protocol::ChannelShape shape, std::uint32_t peers) override;
  Status free_channels(const char* own) override { return nearlight::runtime::free_channels(channels_, own); }
  std::size_t scratch_bytes() const override { return heap_->view().bytes; }
  bool early_launch() const override { return nranks() == 1 || early_.is_on(); }
  std::string placement() const override { return placement_.in_words(); }

  // See runtime/kernel_loop.hpp.
  Status all_reduce_loop(const void* send, void* recv, std::size_t count, DataType type, const Reduction& op,
                         const LoopPlan& plan, std::vector<double>& op_ns, Stream stream,
                         const CallOptions& options);
  Result<route::Route> explain_all_reduce_loop(std::size_t count, DataType type, ReduceOp op,
                                               const CallOptions& options) const {
    return route_of(count, type, op, options, true);
  }

 private:
  CudaCommunicator() = default;
  Status enqueue_all_reduce(const void* send, void* recv, std::size_t count, DataType type,
                            const Reduction& op, Stream stream, const CallOptions& options, bool& capturing);
  Status enqueue_barrier(Stream stream, bool& capturing);
  Status enqueue_collective(const CollectiveCall& call, Stream stream, const CallOptions& options,
                            bool& capturing);
  // `rest`: as of begin_messages(); null: none.
  Status make_messages(std::span<const MessageCall> group, Stream stream, const CallOptions& options,
                       Rest* rest);
  Status enqueue_messages(std::span<const MessageCall> group, Stream stream, const CallOptions& options,
                          bool& capturing, Rest* rest);
  route::Facts message_facts(std::size_t count, DataType type) const;
  // This rank's memory and ends of pipes as before their first turn, which comes after `turn`.
  Status rest_pipes(std::uint32_t turn);
  // Of every kind of OneWayCall, see one_way.hpp.
  template <class OneWay>
  Status one_way(const OneWay& call, Stream stream, const CallOptions& options);
  template <class OneWay>
  Status enqueue_one_way(const OneWay& call, Stream stream, const CallOptions& options, bool& capturing);
  // Of one rank alone: its input is its output.
  Status enqueue_alone(const void* send, void* recv, std::size_t count, DataType type, const Reduction& op,
                       cudaStream_t stream, bool& capturing);
  // Check mode looks at the arguments of one rank, too, which has no other to compare its calls with.
  bool may_overlap(const CallOptions& options) const {
    return options.may_overlap && !arguments_.looks_always();
  }
  // `peer`: the one that is gone, or -1. Returns how often it was stopped by now.
  std::uint64_t stop(Status reason, int peer);
  // The ranks' own way alone: calls may still go elsewhere.
  void stop_own_way(Status reason);
  // Check mode, the last thing before a launch: all ranks make this call. Nothing else.
  Status compare_calls(Call call, cudaStream_t stream, bool capturing);
  // By the attached NCCL, as the route says. `capturing`: whether the stream is.
  Status hand_over(const void* send, void* recv, std::size_t count, DataType type, const Reduction& op,
                   cudaStream_t stream, bool capturing);
  Status hand_over(const CollectiveCall& call, cudaStream_t stream, bool capturing);
  Status hand_over(std::span<const MessageCall> group, cudaStream_t stream, bool capturing, Rest* rest);
  // In front of NCCL's call, and with what it said.
  Status before_nccl(cudaStream_t stream) const;
  Status handed_over(Status outcome, cudaStream_t stream, bool capturing);
  // After an eager call that nobody of ours makes: in check mode it has its place, and a failure is
  // everybody's.
  Status made_elsewhere(Status outcome, cudaStream_t stream, bool capturing);
  Status give_to_nccl(const void* send, void* recv, std::size_t count, DataType type, const Reduction& op,
                      cudaStream_t stream, bool capturing);
  // By the CPU, likewise.
  Status stage(const void* send, void* recv, std::size_t count, DataType type, const Reduction& op,
               cudaStream_t stream, bool capturing);
  Status copy_by_kernel(void* to, const void* from, std::size_t bytes, cudaStream_t stream);
  Status ask_host(const algorithm::HostRequest& request, cudaStream_t stream);
  Status barrier_elsewhere(route::Algorithm algorithm, cudaStream_t stream, bool capturing);
  // Whether the ranks' own way has failed: their kernels neither send nor wait any more.
  bool own_way_failed() const { return stopped_.load(std::memory_order_relaxed) || control_->has_fault(); }
  // Ok: a call by `algorithm` can be made although the ranks' own way has failed. Else why not.
  Status may_go_elsewhere(route::Algorithm algorithm) const;
  // Who makes calls that no option sends elsewhere: nccl or staged, else one of our own.
  route::Algorithm way() const;
  // The CPU's part, where NCCL is not attached; collective.
  Status add_staged_path(Deadline deadline);
  // After a launch: a refusal outside a capture has taken this rank out of step with the others for good.
  Status launched(Status outcome, cudaStream_t stream, bool capturing);
  algorithm::cuda::AllReduceArgs args_of_region(Collective collective) const;
  route::Facts facts(std::size_t count, DataType type, ReduceOp op) const;
  // At the end, when nothing runs any more.
  void write_trace();
  // After a time-out, once: see tell_of_timeout().
  void tell_once() const;
  // Sees whether lines arrive whole, where they would be used; collective. Leaves this rank's memory at zero.
  Status test_lines(const Options& options, int sms, Deadline deadline);
  // Starts the threads that look while the program does something else. `dumps`: whether state dumps are
  // wanted; `answers`: whether `nearlight dump` is answered.
  Status start_watching(bool dumps, bool answers);
  // This rank's part of the scratch.
  char* own_regions() const;
  // Puts all of it to rest but the packets.
  Status clear_regions();
  // Puts the sentinel into this rank's packets.
  Status empty_packets();
  // Grid and threads that the caller gives; names the one that cannot be.
  Status apply_shape(const CallOptions& options, route::Route& route) const;
  // With every check of `options`.
  Result<route::Route> route_of(std::size_t count, DataType type, ReduceOp op, const CallOptions& options,
                                bool in_a_loop) const;
  algorithm::cuda::LaunchShape shape_of(const route::Route& route, DataType type, ReduceOp op,
                                        const CallOptions& options) const;
  algorithm::cuda::AllReduceArgs args_of(const void* send, void* recv, std::size_t count, const Reduction& op,
                                         const CallOptions& options) const;

  int rank_ = 0;
  int device_ = 0;
  std::uint32_t regions_ = 0, max_ctas_ = 0;
  protocol::RegionLayout layout_;
  std::size_t heap_offset_ = 0;
  std::uint32_t lanes_ = 0;   // of pipes, behind the regions
  std::size_t pipes_at_ = 0;  // in the heap
  std::chrono::nanoseconds timeout_{};
  // What creation was asked for, to do it again with fewer ranks.
  struct Wish {
    HeapPlan heap = {};
    Options options = {};
  };
  Wish wish_;
  Survivors survivors_;
  CudaArguments arguments_;
  bool check_ = false;                  // check mode of several ranks
  StreamOrder stream_order_;            // check mode
  std::shared_ptr<CallLedger> ledger_;  // check mode, all ranks in this process
  std::uint64_t compared_ = 0;          // calls
  HealthBoard health_;                  // in the CPU's memory, where there is some; else nobody's is known
  route::Table table_;
  probe::LineReport lines_;    // the same on all ranks
  bool adds_lines_ = false;    // likewise: all GPUs have the instruction
  bool large_shared_ = false;  // see route::Facts
  EarlyLaunch early_;          // of the kernel after a call's
  bool deterministic_ = true;
  std::atomic<std::uint64_t> path_{0};  // number_of(route::Forced): NEARLIGHT_FORCE_PATH, set_path()
  route::Placement placement_;
  RouteLog route_log_;
  std::unique_ptr<Fallback> fallback_;
  route::AttachedNccl nccl_;
  std::shared_ptr<Exchange> exchange_;  // null: shrunk
  std::unique_ptr<memory::Heap> heap_;
  ChannelList channels_;
  std::shared_ptr<CudaControl> control_;
  std::unique_ptr<StagedPath> staged_;  // null: calls go to NCCL instead, or there is one rank
  std::atomic<bool> stopped_{false};    // abort() was called
  StopNote stop_note_;                  // why the abort word was set on purpose
  std::unique_ptr<CudaReader> reader_;  // where dumps are wanted
  std::optional<Tracer> tracer_;
  mutable std::atomic<bool> told_{false};  // of a time-out, since the last reset
  std::unique_ptr<PeerWatch> watch_;       // last, with the next: their threads use the others
  std::unique_ptr<DumpService> dump_service_;
};

}  // namespace nearlight::runtime
