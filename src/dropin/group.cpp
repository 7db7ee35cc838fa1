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

// A communicator that has a companion.
struct Beside {
  Entry* entry;
  ncclComm* comm;
  bool operator==(const Beside&) const = default;
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
std::vector<void*> streams_of(const Kept& group, const ncclComm* comm) {
  std::vector<void*> streams;
  const auto add = [&streams](void* stream) {
    if (std::find(streams.begin(), streams.end(), stream) == streams.end()) streams.push_back(stream);
  };
  for (const Taken& taken : group.taken) {
    if (taken.operation.comm == comm) add(taken.operation.stream);
  }
  for (const Operation& operation : group.by_nccl) {
    if (operation.comm == comm) add(operation.stream);
  }
  return streams;
}

bool has_some_by_nccl(const Kept& group, const ncclComm* comm) {
  return std::any_of(group.by_nccl.begin(), group.by_nccl.end(),
                     [comm](const Operation& operation) { return operation.comm == comm; });
}

// What is enqueued on the streams of the group waits for the communicator's operations before it, wherever
// they are, and for what is on the other streams.
Status order_before(const Kept& group, const Beside& beside) {
  const auto streams = streams_of(group, beside.comm);
  const std::lock_guard lock(beside.entry->busy);
  Companion* const companion = companion_of(*beside.entry, beside.comm);
  if (companion == nullptr) return {};
  // Those that are taken are ordered as they run.
  if (has_some_by_nccl(group, beside.comm)) {
    for (void* const stream : streams) NL_TRY(companion->before_other(stream));
  }
  return streams.size() > 1 ? companion->join(streams) : Status();
}

// The other side of it. `result`: of the end of the group.
Status order_after(const RealNccl& nccl, const Kept& group, const Beside& beside, ncclResult_t result) {
  const auto streams = streams_of(group, beside.comm);
  const bool some_by_nccl = has_some_by_nccl(group, beside.comm);
  if (some_by_nccl && result == ncclInProgress) {
    NL_TRY_ASSIGN(const bool enqueued, wait_until_enqueued(nccl, *beside.entry, beside.comm));
    if (!enqueued) return {};
  }
  const std::lock_guard lock(beside.entry->busy);
  Companion* const companion = companion_of(*beside.entry, beside.comm);
  if (companion == nullptr) return {};
  if (streams.size() > 1) NL_TRY(companion->join(streams));
  // Behind the join one stream stands for all.
  return some_by_nccl ? companion->after_other(streams[0]) : Status();
}

void add_once(std::vector<Beside>& all, const Beside& beside) {
  if (std::find(all.begin(), all.end(), beside) == all.end()) all.push_back(beside);
}

// Communicators with operations that are taken, each once, in the order of their first one.
std::vector<Beside> takers_of(const Kept& group) {
  std::vector<Beside> takers;
  for (const Taken& taken : group.taken) add_once(takers, {taken.entry, taken.operation.comm});
  return takers;
}

// And those with operations by NCCL that have a companion.
std::vector<Beside> all_to_order(const Kept& group, std::vector<Beside> takers) {
  for (const Operation& operation : group.by_nccl) {
    Entry* const entry = find_entry(operation.comm);
    if (entry != nullptr && entry->state.load(std::memory_order_acquire) == State::attached)
      add_once(takers, {entry, operation.comm});
  }
  return takers;
}

// What was taken goes first, in the order of the calls: NCCL, too, has collectives before sends and receives.
// So a rank that waits in a receive has its part of the collective out.
Status start_taken(const Kept& group, const std::vector<Beside>& takers, const std::vector<Beside>& ordered) {
  for (const Beside& beside : ordered) NL_TRY(order_before(group, beside));
  for (const Taken& taken : group.taken) {
    if (!taken.operation.is_message()) NL_TRY(run(*taken.entry, taken.operation));
  }
  for (const Beside& taker : takers) {
    std::vector<Operation> messages;
    for (const Taken& taken : group.taken) {
      if (taken.operation.comm == taker.comm && taken.operation.is_message())
        messages.push_back(taken.operation);
    }
    if (!messages.empty()) NL_TRY(run_together(*taker.entry, messages));
  }
  for (const Operation& operation : group.by_nccl) NL_TRY(before_nccl(operation.comm, operation.stream));
  return {};
}

// The ranks that have begun what this one does not begin now must not wait for their limit.
void give_up(const std::vector<Beside>& takers) {
  for (const Beside& taker : takers) {
    const std::lock_guard lock(taker.entry->guard);
    if (Companion* const companion = companion_of(*taker.entry, taker.comm)) companion->abort();
  }
}

ncclResult_t end_group(const RealNccl& nccl) {
  const Kept group = std::exchange(kept(), {});
  const auto takers = takers_of(group);
  const auto ordered = all_to_order(group, takers);
  Status started = start_taken(group, takers, ordered);
  const ncclResult_t result = nccl.ncclGroupEnd();
  const bool ended = result == ncclSuccess || result == ncclInProgress;
  if (!started.ok() || !ended) give_up(takers);
  if (!ended) return started.ok() ? forwarded(result) : failed(started);
  for (const Beside& beside : ordered) {
    if (!started.ok()) break;
    started = order_after(nccl, group, beside, result);
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
