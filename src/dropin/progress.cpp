#include "dropin/progress.hpp"

#include <chrono>
#include <cstdint>
#include <thread>

#include "base/deadline.hpp"

namespace nearlight::dropin {

namespace {

// What a first call may take, which connects the ranks.
constexpr std::int64_t kEnqueue_ms = 60'000;
// How often a program may ask, too.
constexpr auto kPause = std::chrono::microseconds(50);

}  // namespace

Status not_ready() {
  return failure(Code::invalid_argument,
                 "comm: the operation before is in progress (ncclCommGetAsyncError tells when it is not)");
}

Result<bool> wait_until_enqueued(const RealNccl& nccl, Entry& entry, ncclComm* comm) {
  const Deadline deadline = Deadline::after_ms(kEnqueue_ms);
  for (;;) {
    {
      // Who ends the communicator takes it out of the entry, and then waits for this lock.
      const std::lock_guard lock(entry.busy);
      if (entry.comm.load(std::memory_order_acquire) != comm) return false;
      ncclResult_t state = ncclSuccess;
      if (nccl.ncclCommGetAsyncError(comm, &state) != ncclSuccess) return false;
      if (state != ncclInProgress) return state == ncclSuccess;
    }
    if (deadline.passed())
      return failure(Code::timeout,
                     "comm: NCCL has not enqueued the operation within %d s; a rank has not made it",
                     static_cast<int>(kEnqueue_ms / 1000));
    std::this_thread::sleep_for(kPause);
  }
}

}  // namespace nearlight::dropin
