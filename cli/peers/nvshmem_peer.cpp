#include "cli/peers/nvshmem_peer.hpp"

#include <cuda_runtime_api.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <future>
#include <system_error>
#include <thread>
#include <utility>

#include "cli/peers/nvshmem_api.hpp"
#include "cli/results.hpp"
#include "memory/cuda_driver.hpp"

namespace nearlight::peers {

namespace {

using bench::Buffers;
using bench::Choice;
using bench::Operation;

// NVSHMEM's own waits have none.
constexpr std::chrono::seconds kLimit{120};
constexpr std::chrono::seconds kLeaveLimit{20};

// Runs `call` in a thread of its own with `device` current. At the limit the thread is left behind, so `call`
// must own whatever it touches.
Status bounded(const char* what, int device, std::function<int()> call, std::chrono::seconds limit) {
  std::promise<Status> promise;
  std::future<Status> outcome = promise.get_future();
  try {
    std::thread([device, what, call = std::move(call), promise = std::move(promise)]() mutable {
      Status status = memory::cuda_status(cudaSetDevice(device), "cudaSetDevice");
      if (status.ok()) {
        const int result = call();
        if (result != 0) status = failure(Code::system_error, "%s returns %d", what, result);
      }
      promise.set_value(std::move(status));
    }).detach();
  } catch (const std::system_error& error) {
    return system_failure("starting a thread", error.code().value());
  }
  if (outcome.wait_for(limit) != std::future_status::ready) {
    return failure(Code::timeout, "%s: not all ranks came within %lld s", what,
                   static_cast<long long>(limit.count()));
  }
  return outcome.get();
}

// What the machine may not have, and what ranks of one host do not need.
void set_environment() {
  setenv("NVSHMEM_REMOTE_TRANSPORT", "none", 0);
  // As for nearlight itself: without multicast, unless somebody asks for it.
  setenv("NVSHMEM_DISABLE_NVLS", "1", 0);
}

}  // namespace

class Nvshmem {
 public:
  Nvshmem(NvshmemApi api, int device, int nranks) : api_(std::move(api)), device_(device), nranks_(nranks) {}
  ~Nvshmem() {
    if (broken_) return;  // to leave is to wait for all others
    // Nothing can be done about a failure; the program is about to end.
    static_cast<void>(bounded(
        "nvshmemx_hostlib_finalize", device_,
        [finalize = api_.hostlib_finalize] {
          finalize();
          return 0;
        },
        kLeaveLimit));
  }
  Nvshmem(const Nvshmem&) = delete;
  Nvshmem& operator=(const Nvshmem&) = delete;

  const NvshmemApi& api() const { return api_; }
  int device() const { return device_; }
  int nranks() const { return nranks_; }
  void give_up() { broken_ = true; }

 private:
  NvshmemApi api_;
  int device_, nranks_;
  std::atomic<bool> broken_{false};
};

namespace {

class NvshmemContender final : public bench::Contender {
 public:
  explicit NvshmemContender(std::shared_ptr<Nvshmem> nvshmem) : nvshmem_(std::move(nvshmem)) {}

  const char* impl() const override { return "nvshmem"; }

  Status all_reduce(const Operation& operation, runtime::Stream stream) override {
    if (type_ != operation.type || op_ != operation.op.op || reduce_ == nullptr) {
      NL_TRY(find(operation.type, operation.op.op));
    }
    const int result = reduce_(kNvshmemWorld, operation.recv, operation.send, operation.count, stream);
    if (result == 0) return {};
    return failure(Code::system_error, "%s returns %d",
                   nvshmem_symbol(operation.type, operation.op.op).c_str(), result);
  }
  void abandon() override { nvshmem_->give_up(); }
  Result<Choice> choice(std::size_t, DataType, ReduceOp, cli::Mode) const override {
    return Choice{"", "", 0, "NVSHMEM does not tell", ""};
  }
  // Its kernels may add in the type itself, a rounding a rank.
  int roundings() const override { return nvshmem_->nranks(); }
  std::string settings() const override {
    return "NVSHMEM " + nvshmem_->api().version + ", " +
           "nvshmemx_TYPE_OP_reduce_on_stream over all ranks, both buffers of nvshmem_malloc";
  }

  // Freed with NVSHMEM itself.
  Result<Buffers> own_buffers(std::size_t bytes) override {
    Buffers buffers;
    for (char** buffer : {&buffers.send, &buffers.recv}) {
      const auto made = std::make_shared<void*>(nullptr);
      NL_TRY(bounded(
          "nvshmem_malloc", nvshmem_->device(),
          [made, bytes, allocate = nvshmem_->api().malloc] {
            *made = allocate(bytes);
            return 0;
          },
          kLimit));
      if (*made == nullptr)
        return failure(Code::system_error, "nvshmem_malloc of %zu bytes gives nothing", bytes);
      *buffer = static_cast<char*>(*made);
    }
    return buffers;
  }

 private:
  Status find(DataType type, ReduceOp op) {
    reduce_ = nvshmem_->api().reduce(type, op);
    type_ = type;
    op_ = op;
    if (reduce_ != nullptr) return {};
    return failure(Code::unsupported, "NVSHMEM has no all-reduce of %s by %s", name_of(type), name_of(op));
  }

  std::shared_ptr<Nvshmem> nvshmem_;
  NvshmemReduce reduce_ = nullptr;
  DataType type_ = DataType::f32;
  ReduceOp op_ = ReduceOp::sum;
};

}  // namespace

Result<std::shared_ptr<Nvshmem>> join_nvshmem(Exchange& exchange) {
  set_environment();
  const Deadline deadline = Deadline::after(kLimit);
  auto api = load_nvshmem();
  NL_TRY(agree(exchange, api.status(), deadline));
  NvshmemId mine;
  Status made;
  if (exchange.rank() == 0) {
    if (const int result = api->get_uniqueid(&mine); result != 0)
      made = failure(Code::system_error, "nvshmemx_get_uniqueid returns %d", result);
  }
  NL_TRY(agree(exchange, made, deadline));
  NL_TRY_ASSIGN(const auto ids, gather_values(exchange, mine, deadline));
  int device = 0;
  NL_TRY(memory::cuda_status(cudaGetDevice(&device), "cudaGetDevice"));

  const auto id = std::make_shared<NvshmemId>(ids[0]);
  const auto join = [api = *api, id, rank = exchange.rank(), nranks = exchange.nranks()] {
    NvshmemInitAttributes attributes;
    if (const int result = api.set_attr_uniqueid_args(rank, nranks, id.get(), &attributes); result != 0)
      return result;
    return api.hostlib_init_attr(kNvshmemInitById, &attributes);
  };
  NL_TRY(agree(exchange, bounded("nvshmemx_hostlib_init_attr", device, join, kLimit), deadline));
  return std::make_shared<Nvshmem>(std::move(*api), device, exchange.nranks());
}

std::unique_ptr<bench::Contender> make_nvshmem_contender(std::shared_ptr<Nvshmem> nvshmem) {
  return std::make_unique<NvshmemContender>(std::move(nvshmem));
}

}  // namespace nearlight::peers
