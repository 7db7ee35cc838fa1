// ncclGroupStart to ncclGroupEnd, of this thread: what is taken inside waits for the end, as in NCCL.
#pragma once

#include "dropin/creation.hpp"
#include "dropin/nccl_header.hpp"
#include "dropin/operation.hpp"
#include "dropin/registry.hpp"

namespace nearlight::dropin {

bool in_group();

// For the end of the group: an operation that is taken, a stream that NCCL will use, a communicator that NCCL
// will have made by then.
void keep_for_end(Entry& entry, const Operation& operation);
void keep_for_end(const Operation& by_nccl);
void keep_for_end(const NewCommunicator& made);

}  // namespace nearlight::dropin
