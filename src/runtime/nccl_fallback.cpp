#include "runtime/nccl_fallback.hpp"

#include <algorithm>
#include <atomic>
#include <bitset>
#include <chrono>
#include <functional>
#include <new>
#include <thread>
#include <unordered_set>
#include <utility>
#include <vector>

#include <nearlight/detail/protocol/region.hpp>
#include "memory/cuda_driver.hpp"
#include "memory/nccl_call.hpp"
#include "runtime/cuda_call.hpp"

namespace nearlight::runtime {

namespace {

using memory::Nccl;

// Large enough for the algorithm that NCCL has for large messages.
constexpr std::size_t kLargeBytes = std::size_t{32} << 20;

// Memory and a stream of the calls that set NCCL up. NCCL may still use them when nobody waits any more.
class WarmUp {
 public:
  static Result<std::shared_ptr<WarmUp>> create(std::size_t bytes) {
    NL_TRY_ASSIGN(memory::OwnStream stream, memory::OwnStream::create());
    auto warm_up = std::make_shared<WarmUp>(std::move(stream));
    NL_TRY_CUDA(cudaMalloc(&warm_up->memory_, bytes));
    NL_TRY_CUDA(cudaMemsetAsync(warm_up->memory_, 0, bytes, warm_up->stream_.get()));
    return warm_up;
  }
  explicit WarmUp(memory::OwnStream stream) : stream_(std::move(stream)) {}
  WarmUp(const WarmUp&) = delete;
  // Nobody to tell of a failure to free, and the memory is gone either way.
  ~WarmUp() {
    if (!busy_.load() && memory_ != nullptr) (void)cudaFree(memory_);
  }

  const memory::OwnStream& stream() const { return stream_; }
  void* memory() const { return memory_; }
  // Freeing would wait for what may never end.
  void leave_in_place() { busy_.store(true); }

 private:
  memory::OwnStream stream_;
  void* memory_ = nullptr;
  std::atomic<bool> busy_{false};
};

// What is enqueued on `later` from here on waits for what is on `earlier`.
Status follow(cudaStream_t later, cudaStream_t earlier) {
  cudaEvent_t event = nullptr;
  NL_TRY_CUDA(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  const auto join = [&]() -> Status {
    NL_TRY_CUDA(cudaEventRecord(event, earlier));
    NL_TRY_CUDA(cudaStreamWaitEvent(later, event, 0));
    return {};
  };
  const Status joined = join();
  // Freed when the streams have passed it.
  const cudaError_t destroyed = cudaEventDestroy(event);
  return joined.ok() ? cuda_status("cudaEventDestroy", destroyed) : joined;
}

// What NCCL may connect for anew. It connects the ranks once for each of its algorithms, at the first call
// that takes it, and chooses one by collective, size, type and operator in ways that only it knows: at any
// size it may be another one. So it is the very size that counts.
struct Kind {
  Collective collective;
  DataType type;
  ReduceOp op;
  std::size_t bytes;
  bool operator==(const Kind&) const = default;
};

// Those that have been called.
class Kinds {
 public:
  bool has(const Kind& kind) const { return called_.contains(kind); }
  void add(const Kind& kind) {
    // A program with so many sizes has its calls made anew now and then, which costs a thread each.
    if (called_.size() >= kMost) called_.clear();
    try {
      called_.insert(kind);
    } catch (const std::bad_alloc&) {
      // The call has been made, and the next of its kind is taken for the first again.
    }
  }

 private:
  static constexpr std::size_t kMost = 4096;
  struct Hash {
    std::size_t operator()(const Kind& kind) const {
      const auto what = static_cast<std::size_t>(kind.collective) << 16 |
                        static_cast<std::size_t>(kind.type) << 8 | static_cast<std::size_t>(kind.op);
      return std::hash<std::size_t>()(kind.bytes * 0x9e3779b97f4a7c15u ^ what);
    }
  };
  std::unordered_set<Kind, Hash> called_;
};

class NcclFallback final : public Fallback {
 public:
  NcclFallback(const Nccl& nccl, ncclComm* comm, int device) : nccl_(nccl), comm_(comm), device_(device) {}

  int version() const override { return nccl_.version(); }

  Status prepare(Exchange& exchange, std::size_t first_bytes, Deadline deadline) override {
    const std::size_t first = std::max<std::size_t>(first_bytes, sizeof(float));
    const std::size_t sizes[] = {first, std::max(first, kLargeBytes)};
    const auto warm_up = WarmUp::create(sizes[1]);
    NL_TRY(agree(exchange, warm_up.status(), deadline));
    for (const std::size_t bytes : sizes) {
      Status outcome = reduce_once(*warm_up, bytes / sizeof(float), deadline);
      if (!outcome.ok()) (*warm_up)->leave_in_place();
      NL_TRY(agree(exchange, outcome, deadline));
    }
    for (const Collective collective : kCollectives) {
      if (!goes_by_parts(collective) || is_uneven(collective)) continue;
      Status outcome = parts_once(*warm_up, collective, sizes[1] / 2, exchange.nranks(), deadline);
      if (!outcome.ok()) (*warm_up)->leave_in_place();
      NL_TRY(agree(exchange, outcome, deadline));
    }
    return {};
  }

  Status all_reduce(const void* send, void* recv, std::size_t count, DataType type, ReduceOp op,
                    Stream stream, bool capturing, Deadline deadline) override {
    const auto call = [nccl = &nccl_, comm = comm_, send, recv, count, type, op](Stream on) {
      return nccl->all_reduce(send, recv, count, static_cast<int>(type), static_cast<int>(op), comm, on);
    };
    return make(call, {Collective::all_reduce, type, op, count * size_of(type)}, "ncclAllReduce", stream,
                capturing, deadline);
  }

  Status collective(const CollectiveCall& call, int nranks, Stream stream, bool capturing,
                    Deadline deadline) override {
    const auto enqueues = [nccl = &nccl_, comm = comm_, call, nranks](Stream on) {
      return enqueue(*nccl, comm, call, nranks, on);
    };
    return make(enqueues, {call.collective, call.type, call.op.op, call.count * size_of(call.type)},
                name_of(call.collective), stream, capturing, deadline);
  }

  Status messages(std::span<const MessageCall> group, Stream stream, bool capturing, Deadline deadline,
                  Rest* rest) override {
    const auto call = [nccl = &nccl_, comm = comm_,
                       all = std::vector<MessageCall>(group.begin(), group.end())](Stream on) -> Status {
      NL_TRY(nccl->group_start());
      Status enqueued;
      for (const MessageCall& message : all) {
        constexpr int kBytes = static_cast<int>(DataType::i8);
        enqueued = message.sends
                       ? nccl->send(message.buffer, message.bytes(), kBytes, message.peer, comm, on)
                       : nccl->recv(message.buffer, message.bytes(), kBytes, message.peer, comm, on);
        if (!enqueued.ok()) break;
      }
      // The group is ended in any case: else the thread's next call would join it.
      const Status ended = nccl->group_end();
      return enqueued.ok() ? ended : enqueued;
    };
    // What connects here is each direction to each rank.
    std::bitset<2 * protocol::kMaxRanks> ways;
    for (const MessageCall& message : group)
      ways.set(static_cast<std::size_t>(2 * message.peer + (message.sends ? 1 : 0)));
    if (capturing || (ways & ~ways_).none()) return enqueued(call(stream), "ncclGroupEnd", deadline);
    NL_TRY_ASSIGN(const Rest first,
                  begin_first(call, "ncclGroupEnd", static_cast<cudaStream_t>(stream), deadline));
    const auto second = [this, first, ways]() -> Status {
      NL_TRY(first());
      ways_ |= ways;
      return {};
    };
    if (rest == nullptr) return second();
    *rest = second;
    return {};
  }

 private:
  template <class Call>
  Status make(const Call& call, Kind kind, const char* what, Stream stream, bool capturing,
              Deadline deadline) {
    // A capture is its thread's affair, and connects nothing that was called before.
    if (capturing || connected_.has(kind)) return enqueued(call(stream), what, deadline);
    NL_TRY_ASSIGN(const Rest first, begin_first(call, what, static_cast<cudaStream_t>(stream), deadline));
    NL_TRY(first());
    connected_.add(kind);
    return {};
  }

  // NCCL may connect, for which its host waits for the other ranks' without a limit.
  Result<Rest> begin_first(std::function<Status(Stream)> call, const char* what, cudaStream_t stream,
                           Deadline deadline) {
    std::shared_ptr<memory::OwnStream> own;
    cudaStream_t on = stream;
    // In the thread that makes the call this handle would be another stream.
    if (stream == cudaStreamPerThread) {
      NL_TRY_ASSIGN(memory::OwnStream made, memory::OwnStream::create());
      own = std::make_shared<memory::OwnStream>(std::move(made));
      on = own->get();
      NL_TRY(follow(on, stream));
    }
    const Rest made = memory::begin_nccl_call(
        nccl_, comm_, device_, what, [call = std::move(call), own, on] { return call(on); }, deadline);
    return Rest([made, own, stream, on]() -> Status {
      NL_TRY(made());
      return own == nullptr ? Status() : follow(stream, on);
    });
  }

  static Status enqueue(const Nccl& nccl, ncclComm* comm, const CollectiveCall& call, int nranks,
                        Stream stream) {
    const int type = static_cast<int>(call.type), op = static_cast<int>(call.op.op);
    // What is moved is bytes, whatever types this NCCL knows.
    const std::size_t bytes = call.count * size_of(call.type);
    constexpr int kBytes = static_cast<int>(DataType::i8);
    switch (call.collective) {
      case Collective::all_gather:
        return nccl.all_gather(call.send, call.recv, bytes, kBytes, comm, stream);
      case Collective::broadcast:
        return nccl.broadcast(call.send, call.recv, bytes, kBytes, call.root, comm, stream);
      case Collective::all_to_all:
        return nccl.all_to_all(call.send, call.recv, bytes, kBytes, 1, nranks, comm, stream);
      case Collective::reduce_scatter:
        return nccl.reduce_scatter(call.send, call.recv, call.count, type, op, comm, stream);
      case Collective::reduce:
        return nccl.reduce(call.send, call.recv, call.count, type, op, call.root, comm, stream);
      default:
        break;
    }
    return failure(Code::internal_error, "%s is nothing for NCCL", name_of(call.collective));
  }

  // A non-blocking communicator enqueues in a thread of its own; what is enqueued next must not overtake it.
  Status enqueued(Status status, const char* what, Deadline deadline) const {
    while (status.code() == Code::in_progress) {
      if (deadline.passed()) {
        return failure(Code::timeout, "%s: the operation was not enqueued in time [%s]", what,
                       nccl_.describe().c_str());
      }
      std::this_thread::sleep_for(std::chrono::microseconds(20));
      status = nccl_.comm_async_error(comm_);
    }
    return status;
  }

  // Each collective by parts connects in its own way.
  Status parts_once(const std::shared_ptr<WarmUp>& warm_up, Collective collective, std::size_t bytes,
                    int nranks, Deadline deadline) const {
    char* const send = static_cast<char*>(warm_up->memory());
    const CollectiveCall call{collective, send, send + bytes, bytes / 8 / static_cast<std::size_t>(nranks),
                              DataType::f32};
    NL_TRY(memory::nccl_call(
        nccl_, comm_, device_, name_of(collective),
        [nccl = &nccl_, comm = comm_, warm_up, call, nranks] {
          return enqueue(*nccl, comm, call, nranks, warm_up->stream().get());
        },
        deadline));
    return warm_up->stream().wait(name_of(collective), deadline);
  }

  Status reduce_once(const std::shared_ptr<WarmUp>& warm_up, std::size_t count, Deadline deadline) const {
    NL_TRY(memory::nccl_call(
        nccl_, comm_, device_, "ncclAllReduce",
        [nccl = &nccl_, comm = comm_, warm_up, count] {
          return nccl->all_reduce(warm_up->memory(), warm_up->memory(), count,
                                  static_cast<int>(DataType::f32), static_cast<int>(ReduceOp::sum), comm,
                                  warm_up->stream().get());
        },
        deadline));
    return warm_up->stream().wait("ncclAllReduce", deadline);
  }

  const Nccl& nccl_;
  ncclComm* comm_;
  int device_;
  Kinds connected_;
  std::bitset<2 * protocol::kMaxRanks> ways_;  // of messages that have been made
};

}  // namespace

std::unique_ptr<Fallback> make_nccl_fallback(const Nccl& nccl, ncclComm* comm, int device) {
  return std::make_unique<NcclFallback>(nccl, comm, device);
}

}  // namespace nearlight::runtime
