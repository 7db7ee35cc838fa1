// A symmetric heap in a window of an NCCL communicator.
#pragma once

#include <cstddef>
#include <memory>

#include "base/deadline.hpp"
#include "memory/heap.hpp"

struct ncclComm;

namespace nearlight::memory {

// Collective over the communicator, all of whose ranks must reach each other's memory by load and store.
// `bytes` is the same on all ranks. Either all ranks get a heap or none does. The caller's current device
// stays what it was.
//
// Versions of NCCL that were not tested are refused: where a window lies is read through the device functions
// of the headers that nearlight was compiled with.
//
// The heap must be destroyed before the communicator is, and not while this rank's kernels use it. A peer
// that is later than that still stores into memory.
Result<std::unique_ptr<Heap>> create_nccl_window_heap(ncclComm* comm, std::size_t bytes, Deadline deadline);

// The communicator goes, or is gone: its heaps that live now no longer ask NCCL for anything, and only free
// their memory when they go. For a communicator that must be aborted before they can.
void nccl_communicator_is_gone(ncclComm* comm);

// Whether windows of this version (as in NCCL_VERSION_CODE) are understood: Code::unsupported with the reason
// if not.
Status check_nccl_window_version(int version);

}  // namespace nearlight::memory
