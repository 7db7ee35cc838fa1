// NCCL's functions that tell of errors.
#include "dropin/last_error.hpp"
#include "dropin/real_nccl.hpp"
#include "dropin/registry.hpp"

using namespace nearlight::dropin;  // NOLINT: the entry points below are NCCL's

namespace {

// What the companion has to say of a communicator that NCCL has nothing to say of.
ncclResult_t state_of(Entry& entry, ncclComm* comm) {
  switch (entry.state.load(std::memory_order_acquire)) {
    case State::attaching:
    case State::finalizing:
      return ncclInProgress;
    case State::broken: {
      const std::lock_guard lock(entry.guard);
      return failed(entry.broken);
    }
    case State::attached: {
      const std::lock_guard lock(entry.guard);
      const Companion* const companion = companion_of(entry, comm);
      return companion != nullptr ? told(companion->status()) : ncclSuccess;
    }
    case State::alone:
      return ncclSuccess;
  }
  return ncclSuccess;
}

}  // namespace

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* asyncError) {
  const RealNccl* const nccl = real_nccl();
  if (nccl == nullptr || nccl->ncclCommGetAsyncError == nullptr) return missing(__func__);
  // NCCL asks itself by this name whether a communicator is ready, in most of its functions. For it the one
  // whose companion is still being made is: the companion needs such functions.
  if (called_by_nccl(*nccl, __builtin_return_address(0)))
    return nccl->ncclCommGetAsyncError(comm, asyncError);
  const ncclResult_t result = nccl->ncclCommGetAsyncError(comm, asyncError);
  if (result != ncclSuccess || asyncError == nullptr) return forwarded(result);
  if (*asyncError != ncclSuccess && *asyncError != ncclInProgress) return result;
  Entry* const entry = find_entry(comm);
  const ncclResult_t ours = entry != nullptr ? state_of(*entry, comm) : ncclSuccess;
  // A failure comes before what is in progress, and that before success.
  if (ours != ncclSuccess && (*asyncError == ncclSuccess || ours != ncclInProgress)) *asyncError = ours;
  return result;
}
NL_SECOND_NAME(ncclCommGetAsyncError);

const char* ncclGetLastError(ncclComm_t comm) {
  if (const char* const ours = last_error(); ours != nullptr) return ours;
  const RealNccl* const nccl = real_nccl();
  if (nccl == nullptr) return text_without_nccl();
  return nccl->ncclGetLastError != nullptr ? nccl->ncclGetLastError(comm) : "";
}
NL_SECOND_NAME(ncclGetLastError);
