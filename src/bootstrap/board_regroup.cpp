// How ranks on a board begin anew, with all of them or without some.
#include <algorithm>
#include <string>

#include "bootstrap/board_exchange.hpp"
#include "bootstrap/pidfd.hpp"

namespace nearlight::bootstrap {

namespace {

std::uint32_t waiting(std::uint64_t word) { return static_cast<std::uint32_t>(word & 0xffff); }
std::uint32_t left_out(std::uint64_t word) { return static_cast<std::uint32_t>(word >> 16 & 0xffff); }
std::uint64_t generation_of(std::uint64_t word) { return word >> 32; }

}  // namespace

std::uint32_t BoardExchange::seats_of(std::span<const int> members) const {
  std::uint32_t set = 0;
  for (const int rank : members) set |= 1u << seat(rank);
  return set;
}

Status BoardExchange::regroup(std::span<const int> members, Deadline deadline) {
  if (board_->nranks() > kMaxRegroupRanks) {
    return failure(Code::unsupported, "regroup: %d ranks are more than %d", board_->nranks(),
                   kMaxRegroupRanks);
  }
  NL_TRY(check_members(members, rank_, nranks()));
  // Ends the others' calls.
  static_cast<void>(fail(failure(Code::aborted, "rank %d starts over", rank_)));
  if (Status gathered = gather(members, deadline); !gathered.ok()) return failed_ = std::move(gathered);

  std::vector<int> seats;
  for (const int rank : members) seats.push_back(static_cast<int>(seat(rank)));
  rank_ = static_cast<int>(std::find(members.begin(), members.end(), rank_) - members.begin());
  seats_ = std::move(seats);
  // Rounds of before are over for all, and no number of theirs reaches those of this generation.
  round_ = generation_of(board_->header().regroup.load(std::memory_order_acquire)) << 32;
  failed_ = Status();
  return {};
}

Status BoardExchange::gather(std::span<const int> members, Deadline deadline) {
  auto& word = board_->header().regroup;
  const std::uint32_t mine = 1u << seat(rank_), wanted = seats_of(members),
                      present = seats_of(all_members(nranks()));
  at(rank_).wanted.store(wanted, std::memory_order_relaxed);  // published by the next line
  word.fetch_or(mine, std::memory_order_acq_rel);
  board_->ring();
  for (;;) {
    const std::uint32_t bell = board_->header().bell.load(std::memory_order_acquire);
    std::uint64_t now = word.load(std::memory_order_acquire);
    if ((left_out(now) & mine) != 0) {
      return failure(Code::remote_error, "regroup: the others have gone on without this rank");
    }
    if ((waiting(now) & mine) == 0) break;
    mark_the_ended();
    bool all = true;
    Status gone;
    for (const int peer : members) {
      if (gone.ok()) gone = end_of(peer, "regroup");
      // A peer that waits stored its set before it came.
      all = all && (waiting(now) >> seat(peer) & 1) != 0 &&
            at(peer).wanted.load(std::memory_order_relaxed) == wanted;
    }
    if (all && gone.ok()) {
      const std::uint64_t next = (generation_of(now) + 1) << 32 |
                                 static_cast<std::uint64_t>(left_out(now) | (present & ~wanted)) << 16 |
                                 (waiting(now) & ~wanted);
      if (word.compare_exchange_strong(now, next, std::memory_order_acq_rel)) board_->ring();
      continue;
    }
    Status why_not = std::move(gone);
    if (why_not.ok() && deadline.passed()) why_not = late(members);
    if (!why_not.ok()) {
      if (give_up_regrouping()) return why_not;
      continue;
    }
    board_->wait_for_bell(bell, deadline, pidfds_.empty() ? SharedBoard::kSlice : kLookForEnded);
  }
  at(rank_).wanted.store(0, std::memory_order_relaxed);
  return {};
}

bool BoardExchange::give_up_regrouping() const {
  auto& word = board_->header().regroup;
  const std::uint64_t mine = std::uint64_t{1} << seat(rank_);
  return (word.fetch_and(~mine, std::memory_order_acq_rel) & mine) != 0;
}

Status BoardExchange::check_not_left_out() const {
  if (board_->nranks() > kMaxRegroupRanks)
    return {};  // such a group never regroups, and the word has no bits for it
  // Pairs with the swap that leaves this rank out: whoever has overwritten what was just read came after it.
  std::atomic_thread_fence(std::memory_order_acquire);
  if ((left_out(board_->header().regroup.load(std::memory_order_acquire)) >> seat(rank_) & 1) == 0) return {};
  return failure(Code::remote_error, "the others have gone on without this rank");
}

// Those who wait for others are the news; those who never came are not.
Status BoardExchange::late(std::span<const int> members) const {
  const std::uint64_t now = board_->header().regroup.load(std::memory_order_acquire);
  const std::uint32_t wanted = seats_of(members);
  std::vector<int> missing;
  for (const int peer : members) {
    const std::uint32_t theirs = at(peer).wanted.load(std::memory_order_relaxed);
    if (theirs != 0 && theirs != wanted) {
      std::vector<int> others;
      for (int rank = 0; rank < nranks(); ++rank) {
        if ((theirs >> seat(rank) & 1) != 0) others.push_back(rank);
      }
      return other_members(members, peer, others);
    }
    if ((waiting(now) >> seat(peer) & 1) == 0) missing.push_back(peer);
  }
  return failure(Code::timeout, "regroup: no answer in time from rank(s) %s", in_words(missing).c_str());
}

}  // namespace nearlight::bootstrap
