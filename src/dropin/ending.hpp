// How a companion ends with its communicator.
#pragma once

#include "base/status.hpp"
#include "dropin/real_nccl.hpp"

namespace nearlight::dropin {

// What the program has enqueued comes to its end first, as in NCCL, and then the companion's. From then on
// all calls are passed on, with that reason. Nothing happens where there is no companion.
Status end_companion(ncclComm* comm, const char* reason);

// Ends the companion's waits; all calls are passed on from here on, with that reason.
void stop_companion(ncclComm* comm, const char* reason);

// ncclCommDestroy, ncclCommAbort.
ncclResult_t destroy_communicator(const RealNccl& nccl, ncclComm* comm);
ncclResult_t abort_communicator(const RealNccl& nccl, ncclComm* comm);

}  // namespace nearlight::dropin
