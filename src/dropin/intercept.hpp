// A collective call: taken, or passed on.
#pragma once

#include <span>

#include "dropin/last_error.hpp"
#include "dropin/nccl_header.hpp"
#include "dropin/operation.hpp"
#include "dropin/real_nccl.hpp"
#include "dropin/registry.hpp"

namespace nearlight::dropin {

// What the program is told where the call is not to be passed on; ncclNumResults where it is. `beside`: then
// the entry whose companion must be told when NCCL has it, or null.
ncclResult_t take_or_count(const Operation& operation, Entry*& beside);
// NCCL has returned `result` for it. Returns what the program gets.
ncclResult_t passed_on(Entry& beside, const Operation& operation, ncclResult_t result);

// `forward` calls NCCL. `function`: of the table.
template <class Function, class Forward>
ncclResult_t intercept(const char* name, Function RealNccl::*function, const Operation& operation,
                       Forward forward) {
  const RealNccl* const nccl = real_nccl();
  if (nccl == nullptr || nccl->*function == nullptr) return missing(name);
  Entry* beside = nullptr;
  if (!InsideNccl::now()) {
    const ncclResult_t taken = take_or_count(operation, beside);
    if (taken != ncclNumResults) return taken;
  }
  const ncclResult_t result = [&] {
    const InsideNccl inside;
    return forwarded(forward(nccl->*function));
  }();
  return beside != nullptr ? passed_on(*beside, operation, result) : result;
}

// Enqueues what was taken.
Status run(Entry& entry, const Operation& operation);
// The same of messages that go together.
Status run_together(Entry& entry, std::span<const Operation> messages);

}  // namespace nearlight::dropin
