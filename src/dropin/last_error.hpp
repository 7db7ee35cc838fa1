// Failures of the drop-in's own, in NCCL's codes, and their text for ncclGetLastError.
#pragma once

#include "base/status.hpp"
#include "dropin/nccl_header.hpp"

namespace nearlight::dropin {

// NCCL's code for it; the text is what this thread's ncclGetLastError gives from now on.
ncclResult_t failed(const Status& status);
// ncclSuccess, or as failed().
inline ncclResult_t told(const Status& status) { return status.ok() ? ncclSuccess : failed(status); }
// NCCL's code alone.
ncclResult_t code_of(const Status& status);

// What NCCL returned. A failure of its own has its own text.
ncclResult_t forwarded(ncclResult_t result);

// The text of the drop-in's failure in this thread, or null where the last failure was NCCL's, or none.
const char* last_error();

}  // namespace nearlight::dropin
