// Which communicators there are, and what stands beside each.
#pragma once

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>

#include "base/status.hpp"
#include "dropin/companion.hpp"
#include "dropin/nccl_header.hpp"

namespace nearlight::dropin {

enum class State : int {
  attaching,   // of a non-blocking communicator: for the program it is in progress
  finalizing,  // likewise: what was enqueued comes to its end before NCCL finalizes
  attached,
  alone,   // all calls are passed on
  broken,  // the ranks may not agree about it: no call may be made
};
constexpr bool in_progress(State state) { return state == State::attaching || state == State::finalizing; }

// Of one communicator. Entries are used again and never freed, so that a thread may look at one that another
// thread has just taken out. What it sees there may be of another communicator then: who uses a companion
// asks companion_of(), and who needs the entry for longer holds it.
struct Entry {
  std::atomic<ncclComm*> comm{nullptr};
  std::atomic<State> state{State::alone};
  std::atomic<const char*> reason{""};  // alone: why; lives for ever
  // Written before the communicator is the program's.
  const char* limits = nullptr;  // of Wish; what is split from it without a configuration has the same
  bool blocking = true;

  // Held by a call that uses the companion; nobody waits for other ranks under it.
  std::mutex busy;
  // Guards the rest. Taken after `busy` where both are.
  std::mutex guard;
  // Used under either, the functions that any thread may call under `guard`, and given or taken out under
  // both once a call may come: who has taken it out is alone with it, and ends it in its own thread and time.
  // A thread that only asks how it is must not be left as its last holder.
  std::unique_ptr<Companion> companion;
  Status broken;
  bool cancelled = false;             // the thread that attaches or finalizes should end
  bool aborted = false;               // by ncclCommAbort, which takes the companion out then, and nobody else
  bool destroyed = false;             // by ncclCommDestroy, which is past its own part
  int endings = 0;                    // threads that end it, in their calls
  int finalizings = 0;                // ... that are in NCCL's part of it
  std::condition_variable no_longer;  // ... in progress, or being ended

  // The registry's.
  int holders = 0;
  bool taken_out = false;
};

// Null for a communicator that nobody has added. A few nanoseconds for the one that this thread asked for
// last.
Entry* find_entry(ncclComm* comm);

// Under `busy` or `guard`: null where there is none, or the entry is another communicator's by now.
inline Companion* companion_of(const Entry& entry, const ncclComm* comm) {
  return entry.comm.load(std::memory_order_acquire) == comm ? entry.companion.get() : nullptr;
}

// As long as there is one, the entry is of no other communicator. Not made, copied or destroyed under
// `guard`.
class Hold {
 public:
  Hold() = default;
  explicit Hold(Entry& entry);
  Hold(const Hold& other);
  Hold& operator=(const Hold&) = delete;
  ~Hold();

  explicit operator bool() const { return entry_ != nullptr; }
  Entry& operator*() const { return *entry_; }
  Entry* operator->() const { return entry_; }

 private:
  friend Hold hold_entry(ncclComm* comm);
  Hold(Entry& entry, std::adopt_lock_t /*is counted already*/) : entry_(&entry) {}

  Entry* entry_ = nullptr;
};

// As find_entry, and held from the look on.
Hold hold_entry(ncclComm* comm);

// A new entry, alone with that reason.
Entry& add_entry(ncclComm* comm, const char* reason);

// Takes out what is held: from here on nobody finds it. It is used again once nobody holds it.
void take_out(const Hold& entry);

}  // namespace nearlight::dropin
