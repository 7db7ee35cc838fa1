#include "memory/nccl_exchange.hpp"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <thread>
#include <utility>

#include "base/host_place.hpp"
#include "memory/cuda_driver.hpp"
#include "memory/nccl_api.hpp"
#include "memory/nccl_call.hpp"

namespace nearlight::memory {

namespace {

constexpr int kNcclInt8 = 0;

enum class Kind : std::uint32_t { all_gather, barrier };

const char* name_of(Kind kind) { return kind == Kind::barrier ? "barrier" : "all_gather"; }

// What each rank sends in a round. All rounds have the same size, so that ranks that mean different things
// still meet.
struct Slot {
  Kind kind = Kind::barrier;
  NcclTopic topic = NcclTopic::any;
  std::uint64_t total_bytes = 0;
  std::byte data[4096 - 16] = {};
};
static_assert(sizeof(Slot) == 4096);

// Device memory for one slot of this rank and one of each, and a stream.
class Staging {
 public:
  static Result<std::shared_ptr<Staging>> create(const Nccl& nccl, int device, int nranks) {
    NL_TRY_ASSIGN(OwnStream stream, OwnStream::create());
    NL_TRY_ASSIGN(void* const memory, nccl.mem_alloc((static_cast<std::size_t>(nranks) + 1) * sizeof(Slot)));
    return std::make_shared<Staging>(nccl, device, std::move(stream), static_cast<char*>(memory));
  }
  Staging(const Nccl& nccl, int device, OwnStream stream, char* memory)
      : nccl_(nccl), device_(device), stream_(std::move(stream)), memory_(memory) {}
  Staging(const Staging&) = delete;
  ~Staging() {
    if (busy_.load()) return;
    const auto scope = DeviceScope::enter(device_);
    if (scope.ok()) static_cast<void>(nccl_.mem_free(memory_));  // fails only when CUDA is being torn down
  }

  const OwnStream& stream() const { return stream_; }
  char* mine() const { return memory_; }
  char* all() const { return memory_ + sizeof(Slot); }
  // The GPU may still work here although nobody waits for it any more: the memory is left to it.
  void leave_in_place() { busy_.store(true); }

 private:
  const Nccl& nccl_;
  int device_;
  OwnStream stream_;
  char* memory_;
  std::atomic<bool> busy_{false};
};

class NcclExchange final : public Exchange {
 public:
  NcclExchange(const Nccl& nccl, ncclComm* comm, int device, int rank, int nranks, NcclTopic topic,
               std::shared_ptr<Staging> staging)
      : nccl_(nccl),
        comm_(comm),
        device_(device),
        rank_(rank),
        nranks_(nranks),
        topic_(topic),
        staging_(std::move(staging)) {}

  int rank() const override { return rank_; }
  int nranks() const override { return nranks_; }
  bool same_process() const override { return false; }
  std::vector<pid_t> processes() const override { return processes_; }

  Status all_gather(std::span<const std::byte> mine, std::span<std::byte> all, Deadline deadline) override {
    if (all.size() != mine.size() * static_cast<std::size_t>(nranks_)) {
      return fail(failure(Code::invalid_argument, "all: %zu bytes for %d ranks of %zu bytes", all.size(),
                          nranks_, mine.size()));
    }
    std::size_t offset = 0;
    do {  // one round even for no bytes: the call is a meeting too
      const std::size_t bytes = std::min(sizeof Slot::data, mine.size() - offset);
      NL_TRY(round(Kind::all_gather, mine.size(), mine.subspan(offset, bytes), deadline));
      if (bytes == 0) break;
      for (std::size_t r = 0; r < slots_.size(); ++r) {
        std::memcpy(all.data() + r * mine.size() + offset, slots_[r].data, bytes);
      }
      offset += bytes;
    } while (offset < mine.size());
    return {};
  }

  Status barrier(Deadline deadline) override { return round(Kind::barrier, 0, {}, deadline); }

  Result<UniqueFd> share_fd(int, int, Deadline) override {
    return failure(Code::unsupported, "share_fd: descriptors cannot travel through an NCCL communicator");
  }

  // Only while nothing has failed: a collective of NCCL's that did not end cannot be taken back.
  Status regroup(std::span<const int> members, Deadline deadline) override {
    NL_TRY(check_members(members, rank_, nranks_));
    if (static_cast<int>(members.size()) != nranks_)
      return failure(Code::unsupported, "regroup: NCCL's communicator has all its ranks or none");
    if (!failed_.ok()) {
      return failure(Code::unsupported, "regroup: NCCL's communicator cannot be met through any more: %s",
                     failed_.text().c_str());
    }
    return barrier(deadline);
  }

  Status learn_processes(Deadline deadline) {
    NL_TRY_ASSIGN(const std::vector<HostPlace> places, gather_values(*this, this_host_place(), deadline));
    for (const HostPlace& place : places) {
      if (!place.same_numbers(places[0])) return {};
    }
    for (const HostPlace& place : places) processes_.push_back(static_cast<pid_t>(place.pid));
    return {};
  }

 private:
  // Leaves everyone's slot in slots_.
  Status round(Kind kind, std::size_t total_bytes, std::span<const std::byte> data, Deadline deadline) {
    if (!failed_.ok()) return failed_;
    if (Status status = try_round(kind, total_bytes, data, deadline); !status.ok())
      return fail(std::move(status));
    return {};
  }

  Status try_round(Kind kind, std::size_t total_bytes, std::span<const std::byte> data, Deadline deadline) {
    NL_TRY_ASSIGN(const DeviceScope scope, DeviceScope::enter(device_));
    Slot mine;
    mine.kind = kind;
    mine.topic = topic_;
    mine.total_bytes = total_bytes;
    if (!data.empty()) std::memcpy(mine.data, data.data(), data.size());
    cudaStream_t const stream = staging_->stream().get();
    NL_TRY(cuda_status(cudaMemcpyAsync(staging_->mine(), &mine, sizeof mine, cudaMemcpyHostToDevice, stream),
                       "cudaMemcpyAsync"));
    Status gathered = nccl_call(
        nccl_, comm_, device_, name_of(kind),
        [nccl = &nccl_, comm = comm_, staging = staging_] {
          return nccl->all_gather(staging->mine(), staging->all(), sizeof(Slot), kNcclInt8, comm,
                                  staging->stream().get());
        },
        deadline);
    if (gathered.ok()) gathered = follow(kind, deadline);
    if (!gathered.ok()) {
      staging_->leave_in_place();
      return gathered;
    }
    // Only now, with the stream empty: a copy to ordinary memory waits for the stream, without a limit.
    slots_.resize(static_cast<std::size_t>(nranks_));
    NL_TRY(cuda_status(cudaMemcpyAsync(slots_.data(), staging_->all(), slots_.size() * sizeof(Slot),
                                       cudaMemcpyDeviceToHost, stream),
                       "cudaMemcpyAsync"));
    NL_TRY(staging_->stream().wait("cudaMemcpyAsync", deadline));
    return compare();
  }

  // Waits for the collective on the stream and looks at the communicator meanwhile.
  Status follow(Kind kind, Deadline deadline) const {
    for (;;) {
      NL_TRY_ASSIGN(const bool idle, staging_->stream().idle(name_of(kind)));
      if (idle) return {};
      if (Status error = nccl_.comm_async_error(comm_); !error.ok() && error.code() != Code::in_progress)
        return error;
      if (deadline.passed()) {
        return failure(Code::timeout, "%s: not all ranks of the NCCL communicator came in time",
                       name_of(kind));
      }
      std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
  }

  Status compare() const {
    for (std::size_t r = 1; r < slots_.size(); ++r) {
      if (slots_[r].topic != slots_[0].topic) {
        return failure(Code::invalid_usage,
                       "rank 0 and rank %zu are at different steps of making a communicator", r);
      }
      if (slots_[r].kind != slots_[0].kind) {
        return failure(Code::invalid_usage, "rank 0 calls %s while rank %zu calls %s",
                       name_of(slots_[0].kind), r, name_of(slots_[r].kind));
      }
      if (slots_[r].total_bytes != slots_[0].total_bytes) {
        return failure(Code::invalid_usage, "all_gather: rank 0 gives %zu bytes, rank %zu gives %zu",
                       static_cast<std::size_t>(slots_[0].total_bytes), r,
                       static_cast<std::size_t>(slots_[r].total_bytes));
      }
    }
    return {};
  }

  Status fail(Status why) {
    if (failed_.ok()) failed_ = std::move(why);
    return failed_;
  }

  const Nccl& nccl_;
  ncclComm* comm_;
  int device_;
  int rank_;
  int nranks_;
  NcclTopic topic_;
  std::shared_ptr<Staging> staging_;
  std::vector<Slot> slots_;
  std::vector<pid_t> processes_;
  Status failed_;
};

}  // namespace

Result<std::unique_ptr<Exchange>> create_nccl_exchange(ncclComm* comm, Deadline deadline, NcclTopic topic) {
  if (comm == nullptr) return failure(Code::invalid_argument, "comm: null");
  NL_TRY_ASSIGN(const Nccl* const nccl, Nccl::attached());
  NL_TRY_ASSIGN(const int nranks, nccl->comm_count(comm));
  NL_TRY_ASSIGN(const int rank, nccl->comm_rank(comm));
  NL_TRY_ASSIGN(const int device, nccl->comm_device(comm));
  NL_TRY_ASSIGN(const DeviceScope scope, DeviceScope::enter(device));
  NL_TRY_ASSIGN(std::shared_ptr<Staging> staging, Staging::create(*nccl, device, nranks));
  auto exchange =
      std::make_unique<NcclExchange>(*nccl, comm, device, rank, nranks, topic, std::move(staging));
  NL_TRY(exchange->learn_processes(deadline));
  return std::unique_ptr<Exchange>(std::move(exchange));
}

}  // namespace nearlight::memory
