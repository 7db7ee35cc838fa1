#include "bootstrap/in_process.hpp"

#include <fcntl.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <utility>

#include "base/fault_point.hpp"

namespace nearlight::bootstrap {

namespace {

enum class Kind { all_gather, barrier, share_fd };

const char* name_of(Kind kind) {
  switch (kind) {
    case Kind::all_gather:
      return "all_gather";
    case Kind::barrier:
      return "barrier";
    case Kind::share_fd:
      return "share_fd";
  }
  return "?";
}

// What one rank brings to a collective call.
struct Entry {
  bool arrived = false;
  Kind kind = Kind::barrier;
  std::vector<std::byte> bytes = {};
  int fd = -1;
  int root = 0;
};

// One collective call of the group. Written under the group's mutex until `done`, constant after it.
struct Round {
  explicit Round(int nranks) : entries(static_cast<std::size_t>(nranks)), fds(entries.size()) {}
  std::vector<Entry> entries;
  std::vector<UniqueFd> fds;  // share_fd: each rank takes its own
  int arrived = 0;
  bool done = false;
  Status status;
};

// Looks at a round that is complete: do all mean the same?
Status validate(const Round& round) {
  const Entry& first = round.entries[0];
  for (std::size_t rank = 1; rank < round.entries.size(); ++rank) {
    const Entry& entry = round.entries[rank];
    if (entry.kind != first.kind) {
      return failure(Code::invalid_usage, "rank 0 calls %s while rank %zu calls %s", name_of(first.kind),
                     rank, name_of(entry.kind));
    }
    if (entry.bytes.size() != first.bytes.size()) {
      return failure(Code::invalid_usage, "all_gather: rank 0 gives %zu bytes, rank %zu gives %zu",
                     first.bytes.size(), rank, entry.bytes.size());
    }
    if (entry.root != first.root) {
      return failure(Code::invalid_usage, "share_fd: rank 0 names rank %d as root, rank %zu names rank %d",
                     first.root, rank, entry.root);
    }
  }
  return {};
}

// Makes everyone's duplicate while the root is still inside its call, and its descriptor therefore open.
Status duplicate_fds(Round& round) {
  const int root = round.entries[0].root;
  const int fd = round.entries[static_cast<std::size_t>(root)].fd;
  for (UniqueFd& copy : round.fds) {
    copy = UniqueFd(::fcntl(fd, F_DUPFD_CLOEXEC, 0));
    if (!copy) {
      const int error = errno;
      return system_failure(
          "share_fd: fcntl(F_DUPFD_CLOEXEC) of rank " + std::to_string(root) + "'s descriptor", error);
    }
  }
  return {};
}

// What became of a round that is complete. Never throws: everyone waits for it.
Status outcome_of(Round& round) noexcept {
  try {
    NL_TRY(validate(round));
    return round.entries[0].kind == Kind::share_fd ? duplicate_fds(round) : Status();
  } catch (const std::exception&) {
    return Status(Code::system_error, "out of memory");  // short enough to need none
  }
}

struct Group;

// How far one rank is with starting over.
struct Regrouping {
  bool waits = false;
  bool left_out = false;             // the others have gone on
  std::vector<int> members = {};     // that it last waited for, until it gets them
  std::shared_ptr<Group> next = {};  // where it belongs from now on
  int next_rank = 0;
};

struct Group {
  explicit Group(int n)
      : nranks(n),
        gone(static_cast<std::size_t>(n), false),
        regrouping(static_cast<std::size_t>(n)),
        round(std::make_shared<Round>(n)) {}

  const int nranks;
  std::mutex mutex;
  std::condition_variable changed;
  // Under the mutex:
  std::vector<bool> gone;
  std::vector<Regrouping> regrouping;
  std::shared_ptr<Round> round;  // the one that collects entries
  Status failed;                 // what everyone else learns of the first failure
};

class InProcessExchange final : public Exchange {
 public:
  InProcessExchange(std::shared_ptr<Group> group, int rank) : group_(std::move(group)), rank_(rank) {}
  ~InProcessExchange() override {
    {
      const std::lock_guard lock(group_->mutex);
      group_->gone[static_cast<std::size_t>(rank_)] = true;
    }
    group_->changed.notify_all();
  }

  int rank() const override { return rank_; }
  int nranks() const override { return group_->nranks; }
  bool can_leave_out() const override { return true; }
  bool same_process() const override { return true; }
  std::vector<pid_t> processes() const override { return {}; }

  Status all_gather(std::span<const std::byte> mine, std::span<std::byte> all, Deadline deadline) override {
    if (all.size() != mine.size() * static_cast<std::size_t>(nranks())) {
      return fail(failure(Code::invalid_argument, "all: %zu bytes for %d ranks of %zu bytes", all.size(),
                          nranks(), mine.size()));
    }
    NL_TRY_ASSIGN(const std::shared_ptr<Round> round,
                  run({.kind = Kind::all_gather, .bytes = {mine.begin(), mine.end()}}, deadline));
    std::size_t offset = 0;
    for (const Entry& entry : round->entries) {
      if (!entry.bytes.empty()) std::memcpy(all.data() + offset, entry.bytes.data(), entry.bytes.size());
      offset += entry.bytes.size();
    }
    return {};
  }

  Status barrier(Deadline deadline) override { return run({.kind = Kind::barrier}, deadline).status(); }

  Result<UniqueFd> share_fd(int fd, int root, Deadline deadline) override {
    if (root < 0 || root >= nranks()) {
      return fail(failure(Code::invalid_argument, "root: %d is no rank of %d", root, nranks()));
    }
    NL_TRY_ASSIGN(const std::shared_ptr<Round> round,
                  run({.kind = Kind::share_fd, .fd = fd, .root = root}, deadline));
    return std::move(round->fds[static_cast<std::size_t>(rank_)]);
  }

  // All under one mutex: the last that comes takes everyone along, so it cannot be that only some go on.
  Status regroup(std::span<const int> members, Deadline deadline) override {
    NL_TRY(check_members(members, rank_, nranks()));
    const std::shared_ptr<Group> group = group_;  // outlives the lock
    std::unique_lock lock(group->mutex);
    // Ends the others' calls.
    static_cast<void>(fail_locked(failure(Code::aborted, "rank %d starts over", rank_)));
    Regrouping& mine = group->regrouping[static_cast<std::size_t>(rank_)];
    mine.waits = true;
    mine.members = {members.begin(), members.end()};
    group->changed.notify_all();
    Status why_not;
    while (mine.next == nullptr && why_not.ok()) {
      why_not = hindrance(*group, mine);
      if (!why_not.ok()) break;
      const std::vector<int> missing = missing_members(*group, mine.members);
      if (missing.empty()) {
        take_along(*group, mine.members);
      } else if (deadline.passed()) {
        why_not = late(*group, mine.members, missing);
      } else {
        group->changed.wait_for(lock,
                                std::min<std::chrono::nanoseconds>(deadline.left(), std::chrono::hours(1)));
      }
    }
    mine.waits = false;
    if (mine.next == nullptr) return failed_ = std::move(why_not);
    group->gone[static_cast<std::size_t>(rank_)] = true;
    rank_ = mine.next_rank;
    group_ = std::move(mine.next);
    failed_ = Status();
    return {};
  }

 private:
  static Status hindrance(const Group& group, const Regrouping& mine) {
    if (mine.left_out)
      return failure(Code::remote_error, "regroup: the others have gone on without this rank");
    for (const int peer : mine.members) {
      if (group.gone[static_cast<std::size_t>(peer)])
        return failure(Code::remote_error, "regroup: rank %d has left the group", peer);
    }
    return {};
  }
  static std::vector<int> missing_members(const Group& group, const std::vector<int>& members) {
    std::vector<int> list;
    for (const int peer : members) {
      const Regrouping& theirs = group.regrouping[static_cast<std::size_t>(peer)];
      if (!theirs.waits || theirs.members != members) list.push_back(peer);
    }
    return list;
  }
  // Those who wait for others are the news; those who never came are not.
  static Status late(const Group& group, const std::vector<int>& members, const std::vector<int>& missing) {
    for (const int peer : missing) {
      const std::vector<int>& theirs = group.regrouping[static_cast<std::size_t>(peer)].members;
      if (!theirs.empty() && theirs != members) return other_members(members, peer, theirs);
    }
    return failure(Code::timeout, "regroup: no answer in time from rank(s) %s", in_words(missing).c_str());
  }
  static void take_along(Group& group, const std::vector<int> members) {
    const auto next = std::make_shared<Group>(static_cast<int>(members.size()));
    for (Regrouping& each : group.regrouping) each.left_out = true;
    for (std::size_t i = 0; i < members.size(); ++i) {
      Regrouping& member = group.regrouping[static_cast<std::size_t>(members[i])];
      member.left_out = false;
      member.next = next;
      member.next_rank = static_cast<int>(i);
      member.members.clear();
    }
    group.changed.notify_all();
  }

  // Takes part in the group's next round and waits until all have.
  Result<std::shared_ptr<Round>> run(Entry mine, Deadline deadline) {
    Status here = fault_points::pass(fault_points::kExchangeRound);
    std::unique_lock lock(group_->mutex);
    if (!failed_.ok()) return failed_;
    if (!group_->failed.ok()) return failed_ = group_->failed;
    if (!here.ok()) return fail_locked(std::move(here));
    const std::shared_ptr<Round> round = group_->round;
    const Kind kind = mine.kind;
    const bool last = round->arrived + 1 == group_->nranks;
    // Before this rank counts as arrived: when there is no memory for it, the others see one that has not
    // come.
    auto next = last ? std::make_shared<Round>(group_->nranks) : nullptr;
    Entry& entry = round->entries[static_cast<std::size_t>(rank_)];
    entry = std::move(mine);
    entry.arrived = true;
    ++round->arrived;
    if (last) {
      round->status = outcome_of(*round);
      round->done = true;
      if (round->status.ok()) {
        group_->round = std::move(next);
      } else {
        group_->failed = round->status;
      }
      group_->changed.notify_all();
    }
    while (!round->done) {
      if (!group_->failed.ok()) return failed_ = group_->failed;
      for (std::size_t peer = 0; peer < group_->gone.size(); ++peer) {
        if (!group_->gone[peer] || round->entries[peer].arrived) continue;
        return fail_locked(
            failure(Code::remote_error, "%s: rank %zu has left the group", name_of(kind), peer));
      }
      if (deadline.passed()) {
        return fail_locked(failure(Code::timeout, "%s: no answer in time from rank(s) %s", name_of(kind),
                                   missing(*round).c_str()));
      }
      // Capped so that a far deadline does not overflow the clock.
      group_->changed.wait_for(lock,
                               std::min<std::chrono::nanoseconds>(deadline.left(), std::chrono::hours(1)));
    }
    if (!round->status.ok()) return failed_ = round->status;
    return round;
  }

  static std::string missing(const Round& round) {
    std::string list;
    for (std::size_t peer = 0; peer < round.entries.size(); ++peer) {
      if (!round.entries[peer].arrived) list += (list.empty() ? "" : ", ") + std::to_string(peer);
    }
    return list;
  }

  Status fail(Status why) {
    const std::lock_guard lock(group_->mutex);
    return fail_locked(std::move(why));
  }
  Status fail_locked(Status why) {
    if (!failed_.ok()) return failed_;
    failed_ = std::move(why);
    if (group_->failed.ok()) {
      group_->failed = failure(Code::remote_error, "rank %d gave up: %s", rank_, failed_.text().c_str());
      group_->changed.notify_all();
    }
    return failed_;
  }

  std::shared_ptr<Group> group_;
  int rank_;
  Status failed_;  // under the group's mutex
};

}  // namespace

std::vector<std::unique_ptr<Exchange>> make_in_process_group(int nranks) {
  assert(nranks >= 1);
  auto group = std::make_shared<Group>(nranks);
  std::vector<std::unique_ptr<Exchange>> all;
  for (int rank = 0; rank < nranks; ++rank) all.push_back(std::make_unique<InProcessExchange>(group, rank));
  return all;
}

}  // namespace nearlight::bootstrap
