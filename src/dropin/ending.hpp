// How a companion ends with its communicator.
#pragma once

#include "base/status.hpp"
#include "dropin/real_nccl.hpp"

namespace nearlight::dropin {

// Ends the companion's waits; all calls are passed on from here on, with that reason.
void stop_companion(ncclComm* comm, const char* reason);

// ncclCommFinalize, ncclCommDestroy, ncclCommAbort; what the program gets. What it has enqueued comes to its
// end first, as in NCCL, then the companion, and then NCCL's part. The first two refuse a communicator that
// is in progress, as NCCL's do, and change nothing then. Finalize does not wait where the communicator does
// not block: it is in progress meanwhile.
ncclResult_t finalize_communicator(const RealNccl& nccl, ncclComm* comm);
ncclResult_t destroy_communicator(const RealNccl& nccl, ncclComm* comm);
ncclResult_t abort_communicator(const RealNccl& nccl, ncclComm* comm);

}  // namespace nearlight::dropin
