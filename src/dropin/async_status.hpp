// What ncclCommGetAsyncError is told of a companion.
#pragma once

#include <optional>

#include "base/status.hpp"
#include "runtime/communicator.hpp"

namespace nearlight::dropin {

// Ok where there is no fault, and where a rank has merely ended: nobody has missed it yet, and the next call
// that would need it says so itself. Ranks do not end at one moment, many end without destroying their
// communicators, and NCCL tells nothing of it; a program that watches for errors would take a rank that is
// done for one that is lost.
Status status_to_tell(const std::optional<runtime::Fault>& fault);

}  // namespace nearlight::dropin
