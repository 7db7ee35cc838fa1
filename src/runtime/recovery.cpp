#include "runtime/recovery.hpp"

#include <algorithm>
#include <cinttypes>

#include <nearlight/detail/protocol/epoch.hpp>
#include "base/variables.hpp"

namespace nearlight::runtime {

std::uint32_t epoch_after(std::uint32_t highest) {
  constexpr std::uint32_t kGap = 16;
  // Everything at rest, numbering may as well start anew long before the wrap.
  return highest >= 0xffffffffu - 64 ? protocol::kFirstWrapped : highest + kGap;
}

Status check_limit(const char* name, std::chrono::milliseconds limit) {
  if (limit.count() >= 1 && limit.count() <= variables::kTimeoutMs.highest) return {};
  return failure(Code::invalid_argument, "%s: %" PRId64 " ms is not between 1 ms and a year", name,
                 static_cast<std::int64_t>(limit.count()));
}

Status Survivors::check_all(int nranks) const {
  if (static_cast<int>(ranks_.size()) == nranks) return {};
  return failure(Code::invalid_usage, "it was shrunk: ranks %s have gone on without the others",
                 in_words(ranks_).c_str());
}

Status Survivors::check_shrink(const Exchange* exchange) const {
  if (exchange == nullptr) return check_all(0);
  if (exchange->can_leave_out()) return {};
  return failure(
      Code::unsupported,
      "the ranks meet where none can be left out; with NCCL: shrink its communicator and attach to that");
}

Status Survivors::regroup(Exchange& exchange, std::span<const int> members, Deadline deadline) {
  std::vector<int> numbers;  // as the exchange has them
  for (const int rank : members) {
    const auto at = std::find(ranks_.begin(), ranks_.end(), rank);
    if (at == ranks_.end())
      return failure(Code::invalid_argument, "members: rank %d was left out before", rank);
    numbers.push_back(static_cast<int>(at - ranks_.begin()));
  }
  NL_TRY(exchange.regroup(numbers, deadline));
  ranks_ = {members.begin(), members.end()};
  return {};
}

Status reset_together(Exchange& exchange, const ResetSteps& steps, Deadline deadline) {
  const Status ended = steps.end_own(deadline);
  // A rank whose own work does not end comes nevertheless, if only for a moment: so the others learn why.
  const Status here = exchange.regroup(all_members(exchange.nranks()), deadline);
  if (!here.ok()) return ended.ok() ? here : ended;
  // [R1] From here on nothing is stored any more: all ranks' work had ended before they came.
  const auto last = steps.last_epoch();
  NL_TRY(agree(exchange, ended.ok() ? last.status() : ended, deadline));
  NL_TRY_ASSIGN(const auto epochs, gather_values(exchange, *last, deadline));
  // [R2] Nobody sends before all scratch is at rest.
  return agree(exchange, steps.rest(epoch_after(*std::max_element(epochs.begin(), epochs.end()))), deadline);
}

}  // namespace nearlight::runtime
