#include "dropin/group.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include "dropin/intercept.hpp"
#include "dropin/last_error.hpp"
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

Status join_streams(const Kept& group, Entry& entry) {
  const auto streams = streams_of(group, entry);
  if (streams.size() < 2) return {};
  const std::lock_guard lock(entry.busy);
  const auto companion = entry.held();
  return companion != nullptr ? companion->join(streams) : Status();
}

// Communicators with operations that are taken, each once, in the order of their first one.
std::vector<Entry*> entries_of(const Kept& group) {
  std::vector<Entry*> entries;
  for (const Taken& taken : group.taken) {
    if (std::find(entries.begin(), entries.end(), taken.entry) == entries.end())
      entries.push_back(taken.entry);
  }
  return entries;
}

// What was taken goes first, in the order of the calls: NCCL, too, has collectives before sends and receives.
// So a rank that waits in a receive has its part of the collective out.
Status start_taken(const Kept& group, const std::vector<Entry*>& entries) {
  for (Entry* const entry : entries) NL_TRY(join_streams(group, *entry));
  for (const Taken& taken : group.taken) NL_TRY(run(*taken.entry, taken.operation));
  for (const Operation& operation : group.by_nccl) NL_TRY(before_nccl(operation.stream));
  return {};
}

// The ranks that have begun what this one does not begin now must not wait for their limit.
void give_up(const std::vector<Entry*>& entries) {
  for (Entry* const entry : entries) {
    if (const auto companion = entry->held(); companion != nullptr) companion->abort();
  }
}

ncclResult_t end_group(const RealNccl& nccl) {
  const Kept group = std::exchange(kept(), {});
  const auto entries = entries_of(group);
  Status started = start_taken(group, entries);
  const ncclResult_t result = nccl.ncclGroupEnd();
  if (!started.ok() || (result != ncclSuccess && result != ncclInProgress)) {
    give_up(entries);
    return started.ok() ? forwarded(result) : failed(started);
  }
  for (Entry* const entry : entries) {
    if (const Status joined = join_streams(group, *entry); !joined.ok()) return failed(joined);
  }
  return attach_now(result, group.made);
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
