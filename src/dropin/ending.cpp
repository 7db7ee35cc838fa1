#include "dropin/ending.hpp"

#include <chrono>
#include <memory>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "base/bounded_call.hpp"
#include "base/log.hpp"
#include "dropin/creation.hpp"
#include "dropin/last_error.hpp"
#include "dropin/progress.hpp"
#include "dropin/registry.hpp"

namespace nearlight::dropin {

namespace {

// Waits inside kernels end by the communicator's own limit, so that this only ends what has none.
constexpr std::int64_t kDrain_ms = std::int64_t{24} * 3600 * 1000;
// What freeing a companion may wait for after an abort: the device, on which work of the program's own may
// hang.
constexpr std::int64_t kFree_ms = 10'000;
// What a thread has to come back from NCCL's ncclCommFinalize, or to be where NCCL's ncclCommAbort ends it,
// before another one calls that.
constexpr auto kFinalize = std::chrono::milliseconds(1'000);
// Between two looks at what has not ended.
constexpr auto kPause = std::chrono::microseconds(20);
constexpr const char* kAborted = "the communicator was aborted";
constexpr const char* kFinalized = "the communicator was finalized";

// All calls are passed on from here on. `guard` is held.
void pass_on(Entry& entry, const char* reason) {
  if (entry.state.load() != State::attached) return;
  entry.reason.store(reason, std::memory_order_relaxed);
  entry.state.store(State::alone, std::memory_order_release);
}

// For who frees it: null where ncclCommAbort of another thread will, or there is none.
std::unique_ptr<Companion> take_companion(Entry& entry, const char* reason) {
  const std::lock_guard no_call(entry.busy);
  const std::lock_guard lock(entry.guard);
  pass_on(entry, reason);
  return entry.aborted ? nullptr : std::move(entry.companion);
}

ncclResult_t state_by_nccl(const RealNccl& nccl, ncclComm* comm) {
  ncclResult_t state = ncclSuccess;
  const ncclResult_t asked =
      nccl.ncclCommGetAsyncError != nullptr ? nccl.ncclCommGetAsyncError(comm, &state) : ncclSuccess;
  return asked != ncclSuccess ? asked : state;
}

// NCCL's functions refuse what is in progress, too, but its ncclCommDestroy leaves the thread's group open
// then (2.28): it is not asked.
Status ready_to_end(const RealNccl& nccl, Entry& entry, ncclComm* comm) {
  const State state = entry.state.load(std::memory_order_acquire);
  if (in_progress(state)) return not_ready();
  const bool by_nccl = state == State::attached && state_by_nccl(nccl, comm) == ncclInProgress;
  return by_nccl ? not_ready() : Status();
}

// Code::timeout: what was enqueued has not come to its end yet. Ok without a companion, or with one that has
// failed: nothing of it must.
Status drained_by_now(Entry& entry) {
  const std::lock_guard lock(entry.busy);
  if (entry.companion == nullptr || !entry.companion->status().ok()) return {};
  return entry.companion->drain(Deadline::after_ms(0));
}

// Until all has ended, or another thread wants it to end otherwise. The companion stays where that thread
// finds it, and no lock is held while time passes.
Status drain_unless_cancelled(Entry& entry) {
  for (const Deadline deadline = Deadline::after_ms(kDrain_ms);;) {
    Status drained = drained_by_now(entry);
    if (drained.code() != Code::timeout || deadline.passed()) return drained;
    {
      const std::lock_guard lock(entry.guard);
      if (entry.cancelled || entry.aborted) return {};
    }
    std::this_thread::sleep_for(kPause);
  }
}

Status ended_elsewhere() { return failure(Code::aborted, "comm: another thread ends it"); }

// A thread that ends it, from its first look at the communicator on: ncclCommAbort or ncclCommDestroy of
// another one waits until it is past all that is done here, and NCCL's part then is that thread's alone.
class Ending {
 public:
  explicit Ending(Entry& entry) : entry_(entry) {
    const std::lock_guard lock(entry_.guard);
    if (!entry_.aborted && !entry_.destroyed) counted_ = &entry_.endings;
    if (counted_ != nullptr) ++*counted_;
  }
  Ending(const Ending&) = delete;
  ~Ending() {
    const std::lock_guard lock(entry_.guard);
    count_as(nullptr);
  }

  // Otherwise another thread ends it, and nothing of the communicator may be touched.
  bool begun() const { return counted_ != nullptr; }
  // To NCCL's part: false where another thread has begun to end it meanwhile.
  bool on_to_finalize() {
    const std::lock_guard lock(entry_.guard);
    count_as(entry_.aborted || entry_.destroyed ? nullptr : &entry_.finalizings);
    return counted_ != nullptr;
  }
  bool on_to_destroy() {
    const std::lock_guard lock(entry_.guard);
    count_as(nullptr);
    if (entry_.aborted || entry_.destroyed) return false;
    entry_.destroyed = true;
    if (in_progress(entry_.state.load())) entry_.cancelled = true;  // it was not when this thread looked
    entry_.no_longer.notify_all();
    return true;
  }

 private:
  void count_as(int* counter) {
    if (counted_ != nullptr) --*counted_;
    counted_ = counter;
    if (counted_ != nullptr) ++*counted_;
    entry_.no_longer.notify_all();
  }

  Entry& entry_;
  int* counted_ = nullptr;
};

// Ends the companion, in an Ending. Code::aborted: another thread ends it, by ncclCommAbort.
Status end_companion(const RealNccl& nccl, Entry& entry, ncclComm* comm, const char* reason) {
  const bool well_by_nccl = state_by_nccl(nccl, comm) == ncclSuccess;
  bool must_end = false;
  {
    const std::lock_guard no_call(entry.busy);
    const std::lock_guard lock(entry.guard);
    if (entry.aborted) return ended_elsewhere();
    if (entry.companion == nullptr) return {};
    pass_on(entry, reason);
    must_end = well_by_nccl && entry.companion->status().ok();
    // One that has failed has nothing that must come to an end; NCCL, which has, ends nothing.
    if (!must_end) entry.companion->abort();
  }
  Status drained = must_end ? drain_unless_cancelled(entry) : Status();
  const auto companion = take_companion(entry, reason);
  if (companion == nullptr) return ended_elsewhere();
  return drained;
}

// Whether what was enqueued has come to its end, without a wait. What cannot be told is told by
// end_companion().
bool has_ended(Entry& entry) { return drained_by_now(entry).code() != Code::timeout; }

// On a thread of its own, in the state `finalizing`.
void finalize_entry(const RealNccl& nccl, const Hold& entry, ncclComm* comm) {
  Status ended = drain_unless_cancelled(*entry);
  const auto cancelled = [&entry] {
    const std::lock_guard lock(entry->guard);
    return entry->cancelled;
  };
  if (ended.ok() && !cancelled()) static_cast<void>(take_companion(*entry, kFinalized));
  // It does not wait: the communicator does not block. Who ends it now waits until this state is over. Where
  // it fails, NCCL keeps the failure, too.
  if (ended.ok() && !cancelled()) {
    const ncclResult_t result = nccl.ncclCommFinalize(comm);
    if (result != ncclSuccess && result != ncclInProgress)
      ended = failure(Code::internal_error, "ncclCommFinalize: NCCL's code %d", static_cast<int>(result));
  }
  const std::lock_guard lock(entry->guard);
  const State state = entry->cancelled || ended.ok() ? State::alone : State::broken;
  if (state == State::broken) entry->broken = ended;
  entry->state.store(state, std::memory_order_release);
  entry->no_longer.notify_all();
}

// In an Ending, which keeps out who ends it before this state is seen.
ncclResult_t finalize_behind(const RealNccl& nccl, const Hold& entry, ncclComm* comm) {
  {
    const std::lock_guard lock(entry->guard);
    if (entry->aborted || entry->destroyed) return failed(ended_elsewhere());
    if (entry->state.load() != State::attached) return failed(not_ready());
    entry->reason.store(kFinalized, std::memory_order_relaxed);
    entry->state.store(State::finalizing, std::memory_order_release);
  }
  try {
    std::thread([&nccl, entry, comm] { finalize_entry(nccl, entry, comm); }).detach();
  } catch (const std::system_error& error) {
    const std::lock_guard lock(entry->guard);
    entry->state.store(State::attached, std::memory_order_release);
    entry->no_longer.notify_all();
    return failed(system_failure("ncclCommFinalize: starting a thread", error.code().value()));
  }
  return ncclInProgress;
}

// What other threads do with the communicator: no more of them come, as this one has said that it ends it.
void wait_for_others(Entry& entry, const char* function) {
  if (!wait_until_settled(entry))
    log::warn(std::string(function) + ": the companion of the communicator is still being made, or ended");
  // One that waits for other ranks there is ended by NCCL.
  std::unique_lock lock(entry.guard);
  entry.no_longer.wait_for(lock, kFinalize, [&entry] { return entry.finalizings == 0; });
}

// Nobody finds it any more, and nobody asks NCCL of it. The companion that is still there, for who frees it;
// one that is made later finds that it is too late (settle()).
std::unique_ptr<Companion> leave(const Hold& entry, const char* reason) {
  take_out(entry);
  const std::lock_guard no_question(entry->busy);  // see wait_until_enqueued()
  const std::lock_guard lock(entry->guard);
  pass_on(*entry, reason);
  return std::move(entry->companion);
}

}  // namespace

void stop_companion(ncclComm* comm, const char* reason) {
  const Hold entry = hold_entry(comm);
  if (!entry) return;
  const std::lock_guard lock(entry->guard);
  if (entry->companion != nullptr) entry->companion->abort();
  if (in_progress(entry->state.load())) {
    // Its thread comes to an end, and makes nothing of it any more.
    entry->reason.store(reason, std::memory_order_relaxed);
    entry->cancelled = true;
    entry->no_longer.notify_all();
  } else if (entry->companion != nullptr) {
    entry->reason.store(reason, std::memory_order_relaxed);
    entry->state.store(State::alone, std::memory_order_release);
  }
}

ncclResult_t finalize_communicator(const RealNccl& nccl, ncclComm* comm) {
  const Hold entry = hold_entry(comm);
  if (!entry) return forwarded(nccl.ncclCommFinalize(comm));
  Ending ending(*entry);
  if (!ending.begun()) return failed(ended_elsewhere());
  if (const Status ready = ready_to_end(nccl, *entry, comm); !ready.ok()) return failed(ready);
  if (!entry->blocking && !has_ended(*entry)) return finalize_behind(nccl, entry, comm);
  if (const Status ended = end_companion(nccl, *entry, comm, kFinalized); !ended.ok()) return failed(ended);
  if (!ending.on_to_finalize()) return failed(ended_elsewhere());
  return forwarded(nccl.ncclCommFinalize(comm));
}

ncclResult_t destroy_communicator(const RealNccl& nccl, ncclComm* comm) {
  const Hold entry = hold_entry(comm);
  if (!entry) return forwarded(nccl.ncclCommDestroy(comm));
  constexpr const char* kReason = "the communicator was destroyed";
  {
    Ending ending(*entry);
    if (!ending.begun()) return failed(ended_elsewhere());
    if (const Status ready = ready_to_end(nccl, *entry, comm); !ready.ok()) return failed(ready);
    const Status ended = end_companion(nccl, *entry, comm, kReason);
    if (!ending.on_to_destroy()) return failed(ended_elsewhere());
    // It holds a part of the communicator, which goes all the same.
    if (!ended.ok()) log::warn("ncclCommDestroy: " + ended.text());
  }
  wait_for_others(*entry, "ncclCommDestroy");
  leave(entry, kReason).reset();
  const ncclResult_t result = nccl.ncclCommDestroy(comm);
  if (result != ncclSuccess && result != ncclInProgress) {
    // Then it is still there, without its companion.
    Entry& again = add_entry(comm, kReason);
    again.blocking = entry->blocking;
    again.limits = entry->limits;
  }
  return forwarded(result);
}

ncclResult_t abort_communicator(const RealNccl& nccl, ncclComm* comm) {
  const Hold entry = hold_entry(comm);
  if (!entry) return forwarded(nccl.ncclCommAbort(comm));
  State state = State::alone;
  {
    const std::lock_guard lock(entry->guard);
    if (entry->aborted || entry->destroyed) return failed(ended_elsewhere());
    state = entry->state.load();
    if (in_progress(state)) entry->reason.store(kAborted, std::memory_order_relaxed);
    entry->cancelled = entry->aborted = true;
    // Whoever is in a call comes out of it.
    if (entry->companion != nullptr) entry->companion->abort();
  }
  entry->no_longer.notify_all();
  // Ends what NCCL waits for on behalf of the thread that attaches, and leaves the communicator there.
  if (state == State::attaching && nccl.ncclCommRevoke != nullptr)
    static_cast<void>(nccl.ncclCommRevoke(comm, NCCL_REVOKE_DEFAULT));
  wait_for_others(*entry, "ncclCommAbort");
  std::shared_ptr<Companion> companion = leave(entry, kAborted);
  // NCCL's kernels end only now, and freeing waits for the device; so NCCL goes first, and what is freed
  // afterwards touches nothing of it.
  if (companion != nullptr) companion->communicator_is_gone();
  const ncclResult_t result = nccl.ncclCommAbort(comm);
  if (companion == nullptr) return forwarded(result);
  const Status freed = bounded_call(
      [companion = std::move(companion)](LeftAlone&) mutable {
        companion.reset();
        return Status();
      },
      Deadline::after_ms(kFree_ms),
      failure(Code::timeout,
              "the device's work has not ended; memory of the companion is freed when it has"));
  if (!freed.ok()) log::warn("ncclCommAbort: " + freed.text());
  return forwarded(result);
}

}  // namespace nearlight::dropin
