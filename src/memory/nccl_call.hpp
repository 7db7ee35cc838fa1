// A call of NCCL that may wait for other ranks, with a limit.
#pragma once

#include <functional>

#include "base/deadline.hpp"
#include "memory/nccl_api.hpp"

namespace nearlight::memory {

// Runs `call` in a thread of its own, with `device` current and outside any ncclGroupStart of the caller, and
// follows a non-blocking communicator until it is no longer in progress. NCCL's own waits have no limit: at
// the deadline the thread is left behind with Code::timeout, and ends when the communicator is aborted. So
// `call` must own whatever it touches.
Status nccl_call(const Nccl& nccl, ncclComm* comm, int device, const char* what, std::function<Status()> call,
                 Deadline deadline);
// The same in two halves, as begin_bounded_call.
std::function<Status()> begin_nccl_call(const Nccl& nccl, ncclComm* comm, int device, const char* what,
                                        std::function<Status()> call, Deadline deadline);

}  // namespace nearlight::memory
