#include "dropin/group.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include "dropin/intercept.hpp"
#include "dropin/last_error.hpp"
#include "dropin/progress.hpp"
#include "dropin/real_nccl.hpp"

namespace nearlight::dropin {

namespace {

struct Taken {
  Entry* entry;
  Operation operation;
};

struct Kept {
  std::vector<Taken> taken;
  std::vector<Operation> by_nccl;
  std::vector<NewCommunicator> made;
};

constinit thread_local int depth = 0;

Kept& kept() {
  static thread_local Kept of_thread;
  return of_thread;
}

// The streams of one communicator in the group, each once.
std::vector<void*> streams_of(const Kept& group, const Entry& entry) {
  std::vector<void*> streams;
  const auto add = [&streams](void* stream) {
    if (std::find(streams.begin(), streams.end(), stream) == streams.end()) streams.push_back(stream);
  };
  for (const Taken& taken : group.taken) {
    if (taken.entry == &entry) add(taken.operation.stream);
  }
  for (const Operation& operation : group.by_nccl) {
    if (find_entry(operation.comm) == &entry) add(operation.stream);
  }
  return streams;
}

bool has_some_by_nccl(const Kept& group, const Entry& entry) {
  return std::any_of(group.by_nccl.begin(), group.by_nccl.end(),
                     [&](const Operation& operation) { return find_entry(operation.comm) == &entry; });
}

// What is enqueued on the streams of the group waits for the communicator's operations before it, wherever
// they are, and for what is on the other streams.
Status order_before(const Kept& group, Entry& entry) {
  const auto streams = streams_of(group, entry);
  const std::lock_guard lock(entry.busy);
  Companion* const companion = entry.companion.get();
  if (companion == nullptr) return {};
  // Those that are taken are ordered as they run.
  if (has_some_by_nccl(group, entry)) {
    for (void* const stream : streams) NL_TRY(companion->before_other(stream));
  }
  return streams.size() > 1 ? companion->join(streams) : Status();
}

// The other side of it. `result`: of the end of the group.
Status order_after(const RealNccl& nccl, const Kept& group, Entry& entry, ncclResult_t result) {
  const auto streams = streams_of(group, entry);
  const bool some_by_nccl = has_some_by_nccl(group, entry);
  if (some_by_nccl && result == ncclInProgress) {
    NL_TRY_ASSIGN(const bool enqueued, wait_until_enqueued(nccl, entry, entry.comm.load()));
    if (!enqueued) return {};
  }
  const std::lock_guard lock(entry.busy);
  Companion* const companion = entry.companion.get();
  if (companion == nullptr) return {};
  if (streams.size() > 1) NL_TRY(companion->join(streams));
  // Behind the join one stream stands for all.
  return some_by_nccl ? companion->after_other(streams[0]) : Status();
}

void add_once(std::vector<Entry*>& entries, Entry* entry) {
  if (std::find(entries.begin(), entries.end(), entry) == entries.end()) entries.push_back(entry);
}

// Communicators with operations that are taken, each once, in the order of their first one.
std::vector<Entry*> entries_of(const Kept& group) {
  std::vector<Entry*> entries;
  for (const Taken& taken : group.taken) add_once(entries, taken.entry);
  return entries;
}

// And those with operations by NCCL that have a companion.
std::vector<Entry*> entries_to_order(const Kept& group, std::vector<Entry*> entries) {
  for (const Operation& operation : group.by_nccl) {
    Entry* const entry = find_entry(operation.comm);
    if (entry != nullptr && entry->state.load(std::memory_order_acquire) == State::attached)
      add_once(entries, entry);
  }
  return entries;
}

// What was taken goes first, in the order of the calls: NCCL, too, has collectives before sends and receives.
// So a rank that waits in a receive has its part of the collective out.
Status start_taken(const Kept& group, const std::vector<Entry*>& entries,
                   const std::vector<Entry*>& ordered) {
  for (Entry* const entry : ordered) NL_TRY(order_before(group, *entry));
  for (const Taken& taken : group.taken) {
    if (!taken.operation.is_message()) NL_TRY(run(*taken.entry, taken.operation));
  }
  for (Entry* const entry : entries) {
    std::vector<Operation> messages;
    for (const Taken& taken : group.taken) {
      if (taken.entry == entry && taken.operation.is_message()) messages.push_back(taken.operation);
    }
    if (!messages.empty()) NL_TRY(run_together(*entry, messages));
  }
  for (const Operation& operation : group.by_nccl) NL_TRY(before_nccl(operation.comm, operation.stream));
  return {};
}

// The ranks that have begun what this one does not begin now must not wait for their limit.
void give_up(const std::vector<Entry*>& entries) {
  for (Entry* const entry : entries) {
    const std::lock_guard lock(entry->guard);
    if (entry->companion != nullptr) entry->companion->abort();
  }
}

ncclResult_t end_group(const RealNccl& nccl) {
  const Kept group = std::exchange(kept(), {});
  const auto entries = entries_of(group);
  const auto ordered = entries_to_order(group, entries);
  Status started = start_taken(group, entries, ordered);
  const ncclResult_t result = nccl.ncclGroupEnd();
  const bool ended = result == ncclSuccess || result == ncclInProgress;
  if (!started.ok() || !ended) give_up(entries);
  if (!ended) return started.ok() ? forwarded(result) : failed(started);
  for (Entry* const entry : ordered) {
    if (!started.ok()) break;
    started = order_after(nccl, group, *entry, result);
  }
  // Whatever has failed: the other ranks make companions of what NCCL has made, and would wait for this one.
  const ncclResult_t attached = attach_now(result, group.made);
  return started.ok() ? attached : failed(started);
}

}  // namespace

bool in_group() { return depth > 0; }

void keep_for_end(Entry& entry, const Operation& operation) { kept().taken.push_back({&entry, operation}); }
void keep_for_end(const Operation& by_nccl) { kept().by_nccl.push_back(by_nccl); }
void keep_for_end(const NewCommunicator& made) { kept().made.push_back(made); }

}  // namespace nearlight::dropin

using namespace nearlight::dropin;  // NOLINT: the entry points below are NCCL's

ncclResult_t ncclGroupStart() {
  const RealNccl* const nccl = real_nccl();
  if (nccl == nullptr || nccl->ncclGroupStart == nullptr) return missing(__func__);
  const ncclResult_t result = nccl->ncclGroupStart();
  if (result == ncclSuccess) ++depth;
  return forwarded(result);
}
NL_SECOND_NAME(ncclGroupStart);

ncclResult_t ncclGroupEnd() {
  const RealNccl* const nccl = real_nccl();
  if (nccl == nullptr || nccl->ncclGroupEnd == nullptr) return missing(__func__);
  if (depth > 0) --depth;
  if (depth > 0) return forwarded(nccl->ncclGroupEnd());
  return end_group(*nccl);
}
NL_SECOND_NAME(ncclGroupEnd);

ncclResult_t ncclGroupSimulateEnd(ncclSimInfo_t* simInfo) {
  const RealNccl* const nccl = real_nccl();
  if (nccl == nullptr || nccl->ncclGroupSimulateEnd == nullptr) return missing(__func__);
  if (depth > 0) --depth;
  // What was called is only looked at, and never started.
  if (depth == 0) kept() = {};
  return forwarded(nccl->ncclGroupSimulateEnd(simInfo));
}
NL_SECOND_NAME(ncclGroupSimulateEnd);
