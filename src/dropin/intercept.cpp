#include "dropin/intercept.hpp"

#include <exception>

#include "dropin/group.hpp"
#include "dropin/progress.hpp"
#include "dropin/tally.hpp"

namespace nearlight::dropin {

namespace {

// Under the entry's `busy`.
Verdict decide(const Companion& companion, const Operation& operation) {
  if (operation.count == 0) return {false, "no elements"};
  if (size_of(static_cast<DataType>(operation.type)) == 0)
    return {false, "a type that nearlight does not know"};
  return companion.decide(operation);
}

}  // namespace

ncclResult_t take_or_count(const Operation& operation, Entry*& beside) {
  Entry* const entry = find_entry(operation.comm);
  Verdict verdict{false, "the communicator was not made through the drop-in"};
  if (entry != nullptr) {
    switch (entry->state.load(std::memory_order_acquire)) {
      case State::attached: {
        const std::lock_guard lock(entry->busy);
        Companion* const companion = companion_of(*entry, operation.comm);
        verdict = companion != nullptr ? decide(*companion, operation)
                                       : Verdict{false, "the communicator is being ended"};
        if (!verdict.taken && companion != nullptr && !in_group()) {
          if (const Status ordered = companion->before_other(operation.stream); !ordered.ok())
            return failed(ordered);
          beside = entry;
        }
        break;
      }
      case State::alone:
        verdict.reason = entry->reason.load(std::memory_order_relaxed);
        break;
      case State::attaching:
      case State::finalizing:
        return failed(not_ready());
      case State::broken: {
        const std::lock_guard lock(entry->guard);
        return failed(entry->broken);
      }
    }
  }
  count(operation, verdict);
  if (verdict.taken) {
    if (!in_group()) return told(run(*entry, operation));
    keep_for_end(*entry, operation);
    return ncclSuccess;
  }
  if (in_group()) {
    keep_for_end(operation);
    return ncclNumResults;
  }
  const Status stopped = before_nccl(operation.comm, operation.stream);
  return stopped.ok() ? ncclNumResults : failed(stopped);
}

ncclResult_t passed_on(Entry& beside, const Operation& operation, ncclResult_t result) {
  if (result != ncclSuccess && result != ncclInProgress) return result;
  if (result == ncclInProgress) {
    const auto enqueued = wait_until_enqueued(*real_nccl(), beside, operation.comm);
    if (!enqueued.ok()) return failed(enqueued.status());
    if (!enqueued.value()) return result;
  }
  const std::lock_guard lock(beside.busy);
  Companion* const companion = companion_of(beside, operation.comm);
  if (companion == nullptr) return result;
  const Status ordered = companion->after_other(operation.stream);
  return ordered.ok() ? result : failed(ordered);
}

namespace {

template <class Work>
Status with_companion(Entry& entry, ncclComm* comm, const Work& work) {
  const std::lock_guard lock(entry.busy);
  Companion* const companion = companion_of(entry, comm);
  if (companion == nullptr) return failure(Code::invalid_usage, "comm: it has been ended meanwhile");
  try {
    return work(*companion);
  } catch (const std::exception& error) {
    return failure(Code::system_error, "%s", error.what());
  }
}

}  // namespace

Status run(Entry& entry, const Operation& operation) {
  return with_companion(entry, operation.comm,
                        [&](Companion& companion) { return companion.run(operation); });
}

Status run_together(Entry& entry, std::span<const Operation> messages) {
  return with_companion(entry, messages.front().comm,
                        [&](Companion& companion) { return companion.run_together(messages); });
}

}  // namespace nearlight::dropin
