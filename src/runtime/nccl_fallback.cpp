#include "runtime/nccl_fallback.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>
#include <utility>

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
                    Stream stream, Deadline deadline) override {
    return enqueued(
        nccl_.all_reduce(send, recv, count, static_cast<int>(type), static_cast<int>(op), comm_, stream),
        "ncclAllReduce", deadline);
  }

  Status collective(const CollectiveCall& call, int nranks, Stream stream, Deadline deadline) override {
    return enqueued(enqueue(nccl_, comm_, call, nranks, stream), name_of(call.collective), deadline);
  }

  Status messages(std::span<const MessageCall> group, Stream stream, Deadline deadline) override {
    const auto enqueue = [&]() -> Status {
      NL_TRY(nccl_.group_start());
      Status enqueued;
      for (const MessageCall& message : group) {
        constexpr int kBytes = static_cast<int>(DataType::i8);
        enqueued = message.sends
                       ? nccl_.send(message.buffer, message.bytes(), kBytes, message.peer, comm_, stream)
                       : nccl_.recv(message.buffer, message.bytes(), kBytes, message.peer, comm_, stream);
        if (!enqueued.ok()) break;
      }
      // The group is ended in any case: else the thread's next call would join it.
      const Status ended = nccl_.group_end();
      return enqueued.ok() ? ended : enqueued;
    };
    return enqueued(enqueue(), "ncclGroupEnd", deadline);
  }

 private:
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
};

}  // namespace

std::unique_ptr<Fallback> make_nccl_fallback(const Nccl& nccl, ncclComm* comm, int device) {
  return std::make_unique<NcclFallback>(nccl, comm, device);
}

}  // namespace nearlight::runtime
