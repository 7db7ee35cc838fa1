// Companions come with their communicators.
#pragma once

#include <span>

#include "dropin/nccl_header.hpp"
#include "dropin/registry.hpp"

namespace nearlight::dropin {

// A communicator that NCCL was asked for: where the program wants its handle, and how it is asked for.
struct NewCommunicator {
  ncclComm_t* place;
  Wish wish;
};

// What this rank wants of a communicator with this configuration; null: the one of `parent`, and where there
// is none either, NCCL's defaults. Programs of an older NCCL give shorter structures.
Wish wish_of(const ncclConfig_t* config, ncclComm* parent = nullptr);

// After NCCL has made communicators, or begun to: `result` is what it returned. Inside a group nothing
// happens until its end. Returns what the program gets. A blocking communicator has its companion when this
// returns; one that is in progress gets it from a thread and stays in progress for the program until it has
// it.
ncclResult_t after_creation(ncclResult_t result, std::span<const NewCommunicator> made);
// The same at the end of a group.
ncclResult_t attach_now(ncclResult_t result, std::span<const NewCommunicator> made);

// Waits until the entry is no longer in progress: false when that takes too long.
bool wait_until_settled(Entry& entry);

}  // namespace nearlight::dropin
