#include "cli/peers/nccl_peer.hpp"

#include <atomic>
#include <chrono>
#include <functional>
#include <tuple>
#include <utility>
#include <vector>

#include "memory/cuda_driver.hpp"
#include "memory/nccl_api.hpp"
#include "memory/nccl_call.hpp"

namespace nearlight::peers {

namespace {

using bench::Buffers;
using bench::Choice;
using bench::Operation;
using memory::Nccl;

// NCCL's own waits have none.
constexpr std::chrono::seconds kLimit{120};

class OwnedComm final : public NcclComm {
 public:
  OwnedComm(const Nccl& nccl, ncclComm* comm, int device) : nccl_(nccl), comm_(comm), device_(device) {}
  // Nothing can be done about a failure to destroy; the program is about to end.
  ~OwnedComm() override {
    ncclComm* const comm = comm_.exchange(nullptr);
    if (comm == nullptr) return;
    static_cast<void>(memory::nccl_call(
        nccl_, comm, device_, "ncclCommDestroy", [&nccl = nccl_, comm] { return nccl.comm_destroy(comm); },
        Deadline::after(kLimit)));
  }
  Status bounded(const char* what, std::function<Status()> call) const {
    return memory::nccl_call(nccl_, comm_, device_, what, std::move(call), Deadline::after(kLimit));
  }
  ncclComm* get() const override { return comm_; }
  std::string version() const override { return memory::nccl_version_text(nccl_.version()); }

  const Nccl& nccl() const { return nccl_; }
  // Ends what it waits for, from any thread; the communicator is gone then.
  void abort() {
    ncclComm* const comm = comm_.exchange(nullptr);
    if (comm != nullptr) static_cast<void>(nccl_.comm_abort(comm));
  }

 private:
  const Nccl& nccl_;
  std::atomic<ncclComm*> comm_;
  int device_;
};

class NcclContender final : public bench::Contender {
 public:
  NcclContender(std::shared_ptr<OwnedComm> comm, int rank, int nranks, bool symmetric)
      : comm_(std::move(comm)), rank_(rank), nranks_(nranks), symmetric_(symmetric) {}
  ~NcclContender() override {
    for (ncclWindow_vidmem* window : windows_) {
      if (comm_->get() != nullptr) static_cast<void>(nccl().window_deregister(comm_->get(), window));
    }
    for (void* memory : memory_) static_cast<void>(nccl().mem_free(memory));
  }

  const char* impl() const override { return symmetric_ ? "nccl_sym" : "nccl"; }

  Status all_reduce(const Operation& operation, runtime::Stream stream) override {
    if (comm_->get() == nullptr) return failure(Code::aborted, "the NCCL communicator was aborted");
    if (operation.op.op == ReduceOp::premul_sum) {
      return failure(Code::unsupported, "NCCL's pre-multiplied sums are not measured");
    }
    return nccl().all_reduce(operation.send, operation.recv, operation.count,
                             static_cast<int>(operation.type), static_cast<int>(operation.op.op),
                             comm_->get(), stream);
  }
  Status by_parts(const Operation& operation, runtime::Stream stream) override {
    if (comm_->get() == nullptr) return failure(Code::aborted, "the NCCL communicator was aborted");
    const int type = static_cast<int>(operation.type), op = static_cast<int>(operation.op.op);
    const auto& [send, recv, count] = std::tie(operation.send, operation.recv, operation.count);
    switch (operation.collective) {
      case Collective::all_gather:
        return nccl().all_gather(send, recv, count, type, comm_->get(), stream);
      case Collective::reduce_scatter:
        return nccl().reduce_scatter(send, recv, count, type, op, comm_->get(), stream);
      case Collective::broadcast:
        return nccl().broadcast(send, recv, count, type, operation.root, comm_->get(), stream);
      case Collective::reduce:
        return nccl().reduce(send, recv, count, type, op, operation.root, comm_->get(), stream);
      case Collective::all_to_all:
        return nccl().all_to_all(send, recv, count, type, size_of(operation.type), nranks_, comm_->get(),
                                 stream);
      case Collective::send_recv: {
        NL_TRY(nccl().group_start());
        Status enqueued = nccl().send(send, count, type, (rank_ + 1) % nranks_, comm_->get(), stream);
        if (enqueued.ok())
          enqueued = nccl().recv(recv, count, type, (rank_ + nranks_ - 1) % nranks_, comm_->get(), stream);
        // Ended in any case: else the thread's next call would join it.
        const Status ended = nccl().group_end();
        return enqueued.ok() ? ended : enqueued;
      }
      default:
        return Contender::by_parts(operation, stream);
    }
  }
  Status failed() const override {
    return comm_->get() != nullptr ? nccl().comm_async_error(comm_->get())
                                   : failure(Code::aborted, "the NCCL communicator was aborted");
  }
  void abandon() override { comm_->abort(); }
  Result<Choice> choice(std::size_t, DataType, ReduceOp, cli::Mode) const override {
    return Choice{"", "", 0, "NCCL does not tell", ""};
  }
  std::string settings() const override {
    return "NCCL " + comm_->version() + ", " +
           (symmetric_ ? "both buffers of ncclMemAlloc in windows registered with NCCL_WIN_COLL_SYMMETRIC"
                       : "both buffers of cudaMalloc, not registered") +
           " (all_to_all, send_recv: ncclSend and ncclRecv in a group)";
  }
  // Its kernels may add in the type itself, a rounding a rank.
  int roundings() const override { return nranks_; }

  Result<Buffers> own_buffers(std::size_t bytes) override {
    if (!symmetric_) return Buffers{};
    Buffers buffers;
    for (char** buffer : {&buffers.send, &buffers.recv}) {
      NL_TRY_ASSIGN(void* const memory, nccl().mem_alloc(bytes));
      memory_.push_back(memory);
      const auto made = std::make_shared<ncclWindow_vidmem*>(nullptr);
      NL_TRY(comm_->bounded("ncclCommWindowRegister",
                            [&nccl = nccl(), comm = comm_->get(), memory, bytes, made] {
                              return nccl.window_register(comm, memory, bytes, made.get());
                            }));
      ncclWindow_vidmem* const window = *made;
      if (window == nullptr) {
        return failure(Code::unsupported,
                       "nccl_sym: this NCCL (%s) has no symmetric memory between these GPUs",
                       comm_->version().c_str());
      }
      windows_.push_back(window);
      *buffer = static_cast<char*>(memory);
    }
    return buffers;
  }

 private:
  const Nccl& nccl() const { return comm_->nccl(); }

  std::shared_ptr<OwnedComm> comm_;
  int rank_, nranks_;
  bool symmetric_;
  std::vector<void*> memory_;
  std::vector<ncclWindow_vidmem*> windows_;
};

}  // namespace

Result<std::shared_ptr<NcclComm>> create_nccl_comm(Exchange& exchange) {
  const Deadline deadline = Deadline::after(kLimit);
  auto nccl = Nccl::find();
  NL_TRY(agree(exchange, nccl.status(), deadline));
  memory::NcclUniqueId id{};
  Status made;
  if (exchange.rank() == 0) {
    auto own = (*nccl)->get_unique_id();
    made = own.status();
    if (own.ok()) id = *own;
  }
  NL_TRY(agree(exchange, made, deadline));
  NL_TRY_ASSIGN(const auto ids, gather_values(exchange, id, deadline));
  int device = 0;
  NL_TRY(memory::cuda_status(cudaGetDevice(&device), "cudaGetDevice"));
  const auto comm = std::make_shared<ncclComm*>(nullptr);
  const auto init = [&table = **nccl, comm, nranks = exchange.nranks(), id = ids[0],
                     rank = exchange.rank()]() -> Status {
    NL_TRY_ASSIGN(*comm, table.comm_init_rank(nranks, id, rank));
    return {};
  };
  NL_TRY(agree(exchange, memory::nccl_call(**nccl, nullptr, device, "ncclCommInitRank", init, deadline),
               deadline));
  return std::shared_ptr<NcclComm>(std::make_shared<OwnedComm>(**nccl, *comm, device));
}

Result<std::unique_ptr<bench::Contender>> make_nccl_contender(std::shared_ptr<NcclComm> comm,
                                                              bool symmetric) {
  auto own = std::dynamic_pointer_cast<OwnedComm>(comm);
  if (own == nullptr) return failure(Code::internal_error, "a communicator of another make");
  NL_TRY_ASSIGN(const int rank, own->nccl().comm_rank(own->get()));
  NL_TRY_ASSIGN(const int nranks, own->nccl().comm_count(own->get()));
  return std::unique_ptr<bench::Contender>(
      std::make_unique<NcclContender>(std::move(own), rank, nranks, symmetric));
}

}  // namespace nearlight::peers
