#include "memory/nccl_window_heap.hpp"

#include <algorithm>
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/fault_point.hpp"
#include "memory/cuda_driver.hpp"
#include "memory/handover.hpp"
#include "memory/nccl_api.hpp"
#include "memory/nccl_call.hpp"
#include "memory/nccl_exchange.hpp"
#include "memory/nccl_window_kernel.hpp"

namespace nearlight::memory {

namespace {

// How the addresses of a window are found in a version of NCCL.
enum class Lookup {
  lsa_kernel,  // by a kernel with ncclGetLsaPointer; the layout it reads is the version's own
};

struct TestedVersion {
  int version;
  Lookup lookup;
};

constexpr TestedVersion kTestedVersions[] = {
    {.version = 22809, .lookup = Lookup::lsa_kernel},
};

constexpr std::size_t kWindowAlignment_bytes = 4096;
// Deregistration is local, but NCCL has no limit for it.
constexpr std::int64_t kDeregister_ms = 10'000;

class Window;

// The windows that live. Never destroyed, as a window may outlive other static objects.
struct LiveWindows {
  std::mutex mutex;
  std::vector<Window*> list;
};
LiveWindows& live_windows() {
  static auto& all = *new LiveWindows;
  return all;
}

// Memory and its registration.
class Window {
 public:
  Window(const Nccl& nccl, ncclComm* comm, int device) : nccl_(nccl), comm_(comm), device_(device) {
    const std::lock_guard lock(live_windows().mutex);
    live_windows().list.push_back(this);
  }
  Window(const Window&) = delete;
  ~Window() {
    {
      const std::lock_guard lock(live_windows().mutex);
      std::erase(live_windows().list, this);
    }
    if (busy_) return;
    if (window_ != nullptr && !gone_) {
      // A destructor has nobody to tell. What NCCL may still hold is not freed under it.
      const Status gone = nccl_call(
          nccl_, comm_, device_, "ncclCommWindowDeregister",
          [nccl = &nccl_, comm = comm_, window = window_] { return nccl->window_deregister(comm, window); },
          Deadline::after_ms(kDeregister_ms));
      if (!gone.ok()) return;
    }
    if (pointer_ == nullptr) return;
    const auto scope = DeviceScope::enter(device_);
    if (scope.ok()) static_cast<void>(nccl_.mem_free(pointer_));
  }

  Status allocate(std::size_t bytes) {
    NL_TRY(fault_points::pass(fault_points::kNcclAllocate));
    NL_TRY_ASSIGN(pointer_, nccl_.mem_alloc(bytes));
    bytes_ = bytes;
    return {};
  }

  // Collective.
  Status register_memory(Deadline deadline) {
    // NCCL writes it even after the deadline.
    const auto result = std::make_shared<ncclWindow_vidmem*>(nullptr);
    Status done = nccl_call(
        nccl_, comm_, device_, "ncclCommWindowRegister",
        [nccl = &nccl_, comm = comm_, pointer = pointer_, bytes = bytes_, result] {
          return nccl->window_register(comm, pointer, bytes, result.get());
        },
        deadline);
    if (!done.ok()) {
      // After a timeout a thread is still inside NCCL with this memory.
      if (done.code() == Code::timeout) leave_in_place();
      return done;
    }
    window_ = *result;
    if (window_ == nullptr) {
      return failure(
          Code::unsupported,
          "%s has no symmetric memory for this communicator: ncclCommWindowRegister gave no window",
          nccl_.describe().c_str());
    }
    return fault_points::pass(fault_points::kNcclRegister);
  }

  // Under live_windows().mutex.
  void forget(const ncclComm* comm) { gone_ = gone_ || comm == comm_; }

  // Where this rank finds the parts of all `nranks` ranks. Uses the beginning of the memory for it.
  Result<std::vector<std::uint64_t>> addresses(int nranks, Deadline deadline) {
    std::vector<std::uint64_t> found(static_cast<std::size_t>(nranks));
    NL_TRY_ASSIGN(const OwnStream stream, OwnStream::create());
    NL_TRY(cuda_status(
        launch_lsa_addresses(window_, nranks, static_cast<std::uint64_t*>(pointer_), stream.get()),
        "launch of the kernel that asks for addresses"));
    NL_TRY(finish(stream, "the kernel that asks for addresses", deadline));
    NL_TRY(cuda_status(cudaMemcpyAsync(found.data(), pointer_, found.size() * sizeof(std::uint64_t),
                                       cudaMemcpyDeviceToHost, stream.get()),
                       "cudaMemcpyAsync"));
    NL_TRY(finish(stream, "cudaMemcpyAsync", deadline));
    return found;
  }

  Status zero(Deadline deadline) {
    NL_TRY(fault_points::pass(fault_points::kNcclZero));
    NL_TRY_ASSIGN(const OwnStream stream, OwnStream::create());
    NL_TRY(cuda_status(cudaMemsetAsync(pointer_, 0, bytes_, stream.get()), "cudaMemsetAsync"));
    return finish(stream, "zeroing the heap", deadline);
  }

 private:
  Status finish(const OwnStream& stream, const char* what, Deadline deadline) {
    Status done = stream.wait(what, deadline);
    if (done.code() == Code::timeout) leave_in_place();
    return done;
  }
  // Something may still use the memory although nobody waits for it any more, so it stays until the process
  // ends.
  void leave_in_place() { busy_ = true; }

  const Nccl& nccl_;
  ncclComm* comm_;
  int device_;
  void* pointer_ = nullptr;
  std::size_t bytes_ = 0;
  ncclWindow_vidmem* window_ = nullptr;
  bool busy_ = false;
  bool gone_ = false;  // the communicator, with all that it had registered
};

class NcclWindowHeap final : public Heap {
 public:
  NcclWindowHeap(std::unique_ptr<Window> window, const HeapView& view)
      : window_(std::move(window)), view_(view) {}
  const HeapView& view() const override { return view_; }
  const char* kind() const override { return "nccl_window"; }

 private:
  std::unique_ptr<Window> window_;
  HeapView view_;
};

// All ranks in one load/store team, in the communicator's order.
Status check_team(const Nccl& nccl, ncclComm* comm, int rank, int nranks) {
  NL_TRY(fault_points::pass(fault_points::kNcclTeam));
  NL_TRY_ASSIGN(const NcclTeam team, nccl.lsa_team(comm));
  if (team.nranks != nranks) {
    return failure(Code::unsupported, "only %d of the %d ranks reach each other's memory by load and store",
                   team.nranks, nranks);
  }
  if (team.rank != rank || team.stride != 1) {
    return failure(Code::unsupported, "rank %d stands at place %d (stride %d) of the load/store team", rank,
                   team.rank, team.stride);
  }
  return {};
}

Result<std::size_t> stride_of(const std::vector<std::uint64_t>& addresses, std::size_t bytes) {
  if (addresses.size() == 1) return bytes;
  const std::uint64_t stride = addresses[1] - addresses[0];
  bool even = addresses[0] != 0 && addresses[1] > addresses[0] && stride >= bytes;
  for (std::size_t peer = 1; peer < addresses.size(); ++peer) {
    even = even && addresses[peer] - addresses[peer - 1] == stride;
  }
  if (even) return static_cast<std::size_t>(stride);
  std::string list;
  for (const std::uint64_t address : addresses) {
    char text[24];
    std::snprintf(text, sizeof text, " 0x%" PRIx64, address);
    list += text;
  }
  return failure(Code::unsupported, "the parts of the window do not lie at even distances:%s", list.c_str());
}

}  // namespace

void nccl_communicator_is_gone(ncclComm* comm) {
  const std::lock_guard lock(live_windows().mutex);
  for (Window* const window : live_windows().list) window->forget(comm);
}

Status check_nccl_window_version(int version) {
  for (const TestedVersion& tested : kTestedVersions) {
    if (tested.version == version) return {};
  }
  std::string list;
  for (const TestedVersion& tested : kTestedVersions) {
    list += (list.empty() ? "" : ", ") + nccl_version_text(tested.version);
  }
  return failure(Code::unsupported, "windows of NCCL %s were not tested (tested: %s)",
                 nccl_version_text(version).c_str(), list.c_str());
}

Result<std::unique_ptr<Heap>> create_nccl_window_heap(ncclComm* comm, std::size_t bytes, Deadline deadline) {
  if (comm == nullptr) return failure(Code::invalid_argument, "comm: null");
  NL_TRY_ASSIGN(const Nccl* const nccl, Nccl::attached());
  NL_TRY_ASSIGN(const int device, nccl->comm_device(comm));
  NL_TRY_ASSIGN(const std::unique_ptr<Exchange> exchange,
                create_nccl_exchange(comm, deadline, NcclTopic::window));
  // From here on each step ends with everyone knowing whether all came through, so that nobody waits for a
  // rank that stopped earlier.
  NL_TRY(
      agree(*exchange, check_nccl_window_version(nccl->version()).with_context(nccl->describe()), deadline));
  NL_TRY(check_same_bytes(*exchange, bytes, deadline));
  auto scope = DeviceScope::enter(device);
  NL_TRY(agree(*exchange, scope.status(), deadline));

  HeapView view;
  view.rank = exchange->rank();
  view.nranks = exchange->nranks();
  view.bytes = bytes;
  const std::size_t table = static_cast<std::size_t>(view.nranks) * sizeof(std::uint64_t);
  if (bytes > std::size_t{1} << 46) {
    return failure(Code::invalid_argument, "bytes: %zu is more than there are addresses for", bytes);
  }
  const std::size_t whole =
      (std::max(bytes, table) + kWindowAlignment_bytes - 1) / kWindowAlignment_bytes * kWindowAlignment_bytes;

  auto window = std::make_unique<Window>(*nccl, comm, device);
  NL_TRY(agree(*exchange, window->allocate(whole), deadline));
  NL_TRY(agree(*exchange, window->register_memory(deadline), deadline));
  NL_TRY(agree(*exchange, check_team(*nccl, comm, view.rank, view.nranks), deadline));
  auto addresses = window->addresses(view.nranks, deadline);
  NL_TRY(agree(*exchange, addresses.status(), deadline));
  const auto stride = stride_of(*addresses, whole);
  NL_TRY(agree(*exchange, stride.status(), deadline));
  view.base = reinterpret_cast<char*>(static_cast<std::uintptr_t>((*addresses)[0]));
  view.stride = stride.value();
  NL_TRY(agree(*exchange, window->zero(deadline), deadline));
  return std::unique_ptr<Heap>(std::make_unique<NcclWindowHeap>(std::move(window), view));
}

}  // namespace nearlight::memory
