// How a group of ranks comes back after a failure: what a reset is made of, on CPUs and GPUs alike. The state
// machine and why no old store can arrive afterwards: docs/dev/recovery.md.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "base/exchange.hpp"
#include "base/status.hpp"

namespace nearlight::runtime {

// One rank's part. Each may fail; the others are then told.
struct ResetSteps {
  // Waits until nothing of this rank runs any more that could store into a peer's memory.
  std::function<Status(Deadline)> end_own;
  // The highest epoch that any of this rank's regions has had.
  std::function<Result<std::uint32_t>()> last_epoch;
  // Brings this rank's scratch to rest and lets its regions go on after `epoch`.
  std::function<Status(std::uint32_t epoch)> rest;
};

// Collective. Ok: every rank's part is done on every rank. The waits of this rank have been told to end
// before. Errors: Code::timeout names who did not come, Code::remote_error who is gone or what another rank's
// part failed with.
Status reset_together(Exchange& exchange, const ResetSteps& steps, Deadline deadline);

// Those ranks of a communicator that its exchange still has: all but the ones that a shrink left out.
class Survivors {
 public:
  Survivors() = default;
  Survivors(Exchange& exchange) : ranks_(all_members(exchange.nranks())) {}

  // Code::invalid_usage when some were left out.
  Status check_all(int nranks) const;
  // Before anything is ended: whether a shrink can be tried. `exchange` null: it went to the smaller one.
  Status check_shrink(const Exchange* exchange) const;
  // Regroups the exchange with `members`, which are ranks of the communicator.
  Status regroup(Exchange& exchange, std::span<const int> members, Deadline deadline);

 private:
  std::vector<int> ranks_;
};

// The epoch after which all go on, when the highest on any rank is `highest`: one that no region has had, and
// so far from it that what is left over of earlier ones cannot be its neighbour.
std::uint32_t epoch_after(std::uint32_t highest);

// Code::invalid_argument unless it is 1 ms to a year.
Status check_limit(const char* name, std::chrono::milliseconds limit);

}  // namespace nearlight::runtime
