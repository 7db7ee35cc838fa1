// Ranks that are processes of one host, started separately: by a launcher, by hand, by another program.
#pragma once

#include <memory>
#include <string>

#include "base/deadline.hpp"
#include "base/exchange.hpp"
#include "base/status.hpp"

namespace nearlight::bootstrap {

inline constexpr int kMaxProcessRanks = 64;

// Which place in which group. `key` names the group among those that meet at the same time on this host under
// this user: 1 to 200 bytes, no control characters. See find_job() in job.hpp for where it comes from.
struct GroupPlace {
  int rank = 0;
  int nranks = 1;
  std::string key;
};

// Collective: waits until all `nranks` processes have come, and gives each the exchange of the group.
//
// They meet over a Unix socket in the abstract namespace, which rank 0 opens; the name holds the user and the
// key. It goes with rank 0, however that ends, so there is nothing to clean up, and no TCP port. Once all are
// there the name is free again: the same processes may meet again under the same key. All ranks must see the
// same network and PID namespace (one container, or none).
//
// All ranks fail, with a text that says why, when one of them
//  * does not come: Code::timeout naming it, at the deadline;
//  * ends, or gives up, in the meantime: Code::remote_error, at once;
//  * comes twice, for another number of ranks, or as another build of the library: Code::invalid_usage.
// Processes of other users, and such as say nothing sensible, are turned away and hold nobody up. An argument
// that is wrong in itself fails before anybody is met (Code::invalid_argument).
//
// After the meeting a rank whose process ends is noticed by the others within some milliseconds. Threads of
// one process may be ranks too.
Result<std::unique_ptr<Exchange>> join_process_group(const GroupPlace& place, Deadline deadline);

// The abstract name of the socket without its leading NUL, as `ss -xl` shows it after an @.
std::string meeting_name(const std::string& key);

}  // namespace nearlight::bootstrap
