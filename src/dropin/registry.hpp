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
// thread has just taken out.
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
  int endings = 0;                    // threads that end it, in their calls
  std::condition_variable no_longer;  // ... in progress, or being ended
};

// Null for a communicator that nobody has added. A few nanoseconds for the one that this thread asked for
// last.
Entry* find_entry(ncclComm* comm);

// A new entry, alone with that reason.
Entry& add_entry(ncclComm* comm, const char* reason);

// Takes it out: from here on nobody finds it. Null where there is none. The caller gives it back with
// reuse_entry once nothing of it is used any more.
Entry* take_entry(ncclComm* comm);
void reuse_entry(Entry& entry);

}  // namespace nearlight::dropin
