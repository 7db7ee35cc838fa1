// A collective call: taken, or passed on.
#pragma once

#include "dropin/last_error.hpp"
#include "dropin/nccl_header.hpp"
#include "dropin/operation.hpp"
#include "dropin/real_nccl.hpp"
#include "dropin/registry.hpp"

namespace nearlight::dropin {

// What the program is told where the call is not to be passed on; ncclNumResults where it is.
ncclResult_t take_or_count(const Operation& operation);

// `forward` calls NCCL. `function`: of the table.
template <class Function, class Forward>
ncclResult_t intercept(const char* name, Function RealNccl::*function, const Operation& operation,
                       Forward forward) {
  const RealNccl* const nccl = real_nccl();
  if (nccl == nullptr || nccl->*function == nullptr) return missing(name);
  if (!InsideNccl::now()) {
    const ncclResult_t taken = take_or_count(operation);
    if (taken != ncclNumResults) return taken;
  }
  const InsideNccl inside;
  return forwarded(forward(nccl->*function));
}

// Enqueues what was taken.
Status run(Entry& entry, const Operation& operation);

}  // namespace nearlight::dropin
