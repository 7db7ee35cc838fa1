// Ranks that know each other already, by an exchange that carries less than they need.
#pragma once

#include <memory>

#include "base/deadline.hpp"
#include "base/exchange.hpp"
#include "base/status.hpp"

namespace nearlight::bootstrap {

// Collective over the ranks of `known`, which may carry no descriptors and know no processes: they agree on a
// key that nobody else has, and meet under it as processes of one host (process_group.hpp), or as threads.
// `known` is not used any more afterwards. All succeed or all fail: Code::unsupported naming two ranks that
// are not in one host, PID and network namespace, or not of one user, at once; else as join_process_group,
// which has half of the time until the deadline.
Result<std::unique_ptr<Exchange>> meet_known_ranks(Exchange& known, Deadline deadline);

}  // namespace nearlight::bootstrap
