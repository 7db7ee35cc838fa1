// What NCCL does behind a call of a communicator that does not block.
#pragma once

#include "base/status.hpp"
#include "dropin/nccl_header.hpp"
#include "dropin/real_nccl.hpp"
#include "dropin/registry.hpp"

namespace nearlight::dropin {

// What is told of a call to a communicator that is in progress: as by NCCL, an invalid argument.
Status not_ready();

// Waits until NCCL has enqueued what it was called for, since an event that is to stand behind it must not
// come before it. False: it never will be, as NCCL itself tells the program. Code::timeout after a minute: a
// rank has not made the call.
Result<bool> wait_until_enqueued(const RealNccl& nccl, Entry& entry, ncclComm* comm);

}  // namespace nearlight::dropin
