// A kernel that holds a stream back until the host lets it go.
#pragma once

#include <cstdint>

#include "base/status.hpp"
#include "runtime/communicator.hpp"

namespace nearlight::bench {

// Loads the kernel, so that its first launch does not wait for another that spins.
Status load_hold_kernel();
// Enqueues it: it ends when *flag, in memory that the host and the current device share, is at least `value`,
// or after `limit_ns`.
Status enqueue_hold(const std::uint32_t* flag, std::uint32_t value, std::uint64_t limit_ns,
                    runtime::Stream stream);

}  // namespace nearlight::bench
