#include "dropin/ending.hpp"

#include <memory>
#include <utility>

#include "base/bounded_call.hpp"
#include "base/log.hpp"
#include "dropin/creation.hpp"
#include "dropin/last_error.hpp"
#include "dropin/registry.hpp"

namespace nearlight::dropin {

namespace {

// Waits inside kernels end by the communicator's own limit, so that this only ends what has none.
constexpr std::int64_t kDrain_ms = std::int64_t{24} * 3600 * 1000;
// What freeing a companion may wait for after an abort: the device, on which work of the program's own may
// hang.
constexpr std::int64_t kFree_ms = 10'000;

std::shared_ptr<Companion> take_companion(Entry& entry, const char* reason) {
  const std::lock_guard no_call(entry.busy);
  const std::lock_guard lock(entry.guard);
  if (entry.state.load() == State::attached) {
    entry.reason.store(reason, std::memory_order_relaxed);
    entry.state.store(State::alone, std::memory_order_release);
  }
  return std::exchange(entry.companion, nullptr);
}

Status end_entry(Entry& entry, const char* reason) {
  if (!wait_until_attached(entry)) return failure(Code::timeout, "comm: its companion is still being made");
  const auto companion = take_companion(entry, reason);
  if (companion == nullptr) return {};
  // One that has failed has nothing that must come to an end.
  return companion->status().ok() ? companion->drain(Deadline::after_ms(kDrain_ms)) : Status();
}

}  // namespace

Status end_companion(ncclComm* comm, const char* reason) {
  Entry* const entry = find_entry(comm);
  return entry != nullptr ? end_entry(*entry, reason) : Status();
}

void stop_companion(ncclComm* comm, const char* reason) {
  Entry* const entry = find_entry(comm);
  if (entry == nullptr) return;
  const auto companion = entry->held();
  if (companion == nullptr) return;
  companion->abort();
  entry->reason.store(reason, std::memory_order_relaxed);
  entry->state.store(State::alone, std::memory_order_release);
}

ncclResult_t destroy_communicator(const RealNccl& nccl, ncclComm* comm) {
  Entry* const entry = take_entry(comm);
  if (entry != nullptr) {
    const Status ended = end_entry(*entry, "the communicator was destroyed");
    // It holds a part of the communicator, which goes all the same.
    if (!ended.ok()) log::warn("ncclCommDestroy: " + ended.text());
    if (ended.code() != Code::timeout) reuse_entry(*entry);
  }
  return nccl.ncclCommDestroy(comm);
}

ncclResult_t abort_communicator(const RealNccl& nccl, ncclComm* comm) {
  Entry* const entry = take_entry(comm);
  if (entry == nullptr) return nccl.ncclCommAbort(comm);
  // Whoever is in a call comes out of it.
  if (const auto companion = entry->held(); companion != nullptr) companion->abort();
  if (entry->state.load() == State::attaching) {
    {
      const std::lock_guard lock(entry->guard);
      entry->cancelled = true;
    }
    entry->no_longer.notify_all();
    // Ends what NCCL waits for on behalf of the thread that attaches, and leaves the communicator there.
    if (nccl.ncclCommRevoke != nullptr) static_cast<void>(nccl.ncclCommRevoke(comm, NCCL_REVOKE_DEFAULT));
    if (!wait_until_attached(*entry))
      log::warn("ncclCommAbort: the companion of the communicator is still being made");
  }
  auto companion = take_companion(*entry, "the communicator was aborted");
  if (companion == nullptr) {
    if (entry->state.load() != State::attaching) reuse_entry(*entry);
    return nccl.ncclCommAbort(comm);
  }
  // NCCL's kernels end only now, and freeing waits for the device; so NCCL goes first, and what is freed
  // afterwards touches nothing of it.
  companion->communicator_is_gone();
  const ncclResult_t result = nccl.ncclCommAbort(comm);
  const Status freed = bounded_call(
      [companion = std::move(companion)](LeftAlone&) mutable {
        companion.reset();
        return Status();
      },
      Deadline::after_ms(kFree_ms),
      failure(Code::timeout,
              "the device's work has not ended; memory of the companion is freed when it has"));
  if (!freed.ok()) log::warn("ncclCommAbort: " + freed.text());
  reuse_entry(*entry);
  return result;
}

}  // namespace nearlight::dropin
