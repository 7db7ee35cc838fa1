// How the ranks of one group tell each other things while they set up: bootstrap/ implements it, memory/ and
// runtime/ use it.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "base/deadline.hpp"
#include "base/status.hpp"
#include "base/unique_fd.hpp"

namespace nearlight {

// All calls are collective: every rank of the group makes the same calls in the same order, each from one
// thread. Every wait ends at the deadline with Code::timeout naming the missing rank(s), sooner with
// Code::remote_error when a peer's process is known to be gone. After a failure the exchange is unusable and
// every later call fails at once, until all ranks have come to regroup().
class Exchange {
 public:
  virtual ~Exchange() = default;

  virtual int rank() const = 0;
  virtual int nranks() const = 0;

  // `mine`: the same number of bytes on every rank (checked: Code::invalid_usage otherwise). `all` receives
  // nranks * mine.size() bytes in rank order.
  virtual Status all_gather(std::span<const std::byte> mine, std::span<std::byte> all, Deadline deadline) = 0;
  virtual Status barrier(Deadline deadline) = 0;
  // Gives rank `root`'s file descriptor to everyone; the others pass -1. Each rank owns what it gets (root: a
  // duplicate).
  virtual Result<UniqueFd> share_fd(int fd, int root, Deadline deadline) = 0;

  // Begins anew, whatever has failed, with the ranks `members` (ascending, this one among them), which are
  // renumbered in order; ranks that are left out stay out for good. The members make this call with the same
  // list and need not have made the same calls before: it ends those that go on. On failure the exchange has
  // failed as well, has the ranks that it had, and may regroup again. A member that does not come in time is
  // Code::timeout and named; one whose process has ended or that has left is Code::remote_error, as is a
  // group that went on without this rank; a member that until the deadline had another list is
  // Code::invalid_usage, with both lists. Code::unsupported: these ranks meet only once, and the exchange is
  // as it was.
  virtual Status regroup(std::span<const int> members, Deadline deadline) {
    (void)members, (void)deadline;
    return failure(Code::unsupported, "regroup: the ranks cannot meet again");
  }

  // Whether regroup() can leave ranks out.
  virtual bool can_leave_out() const { return false; }

  // True when all ranks live in this process and so share its address space.
  virtual bool same_process() const = 0;
  // The processes of the ranks, for watching; empty when same_process().
  virtual std::vector<pid_t> processes() const = 0;
};

// all_gather of one trivially copyable value a rank.
template <class T>
Result<std::vector<T>> gather_values(Exchange& exchange, const T& mine, Deadline deadline) {
  static_assert(std::is_trivially_copyable_v<T>);
  std::vector<T> all(static_cast<std::size_t>(exchange.nranks()));
  NL_TRY(exchange.all_gather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all)),
                             deadline));
  return all;
}

// The ranks 0 to n - 1: what regroup() takes when nobody is left out.
inline std::vector<int> all_members(int n) {
  std::vector<int> all;
  for (int rank = 0; rank < n; ++rank) all.push_back(rank);
  return all;
}
// Code::invalid_argument unless `members` are ascending ranks of `nranks` with `self` among them.
Status check_members(std::span<const int> members, int self, int nranks);
// What a member with another list is told; `theirs` is rank `peer`'s.
Status other_members(std::span<const int> members, int peer, std::span<const int> theirs);
// As in "0, 2".
std::string in_words(std::span<const int> members);

// Every rank learns the first failure of any rank (lowest rank first), so that all go on or all stop
// together. A remote failure comes back as that rank's code with "rank N: <text>" (text cut to 200 bytes).
// Where `mine` is a remote error and the exchange fails, its failure comes first: it knows whose fault was
// first.
Status agree(Exchange& exchange, const Status& mine, Deadline deadline);

}  // namespace nearlight
