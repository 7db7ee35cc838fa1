// One rank's end of a group of processes that share a board: forked ones (fork_group.hpp) and those that were
// started separately (process_group.hpp).
#pragma once

#include <chrono>
#include <memory>
#include <vector>

#include "base/exchange.hpp"
#include "bootstrap/shared_board.hpp"

namespace nearlight::bootstrap {

// Where descriptors travel: rank r reads its `receive` end, everyone else writes its `send` end.
struct FdLine {
  UniqueFd send;
  UniqueFd receive;
};
Result<std::vector<FdLine>> make_fd_lines(int nranks);

class BoardExchange final : public Exchange {
 public:
  // Takes the lines it needs and closes the rest. `pidfds`: one a rank, its own left empty, by which it sees
  // that a peer has ended; none at all where a parent watches and writes that on the board.
  BoardExchange(std::shared_ptr<const SharedBoard> board, std::vector<FdLine> lines, int rank,
                std::vector<UniqueFd> pidfds = {});
  ~BoardExchange() override;

  int rank() const override { return rank_; }
  int nranks() const override { return static_cast<int>(seats_.size()); }
  Status all_gather(std::span<const std::byte> mine, std::span<std::byte> all, Deadline deadline) override;
  Status barrier(Deadline deadline) override;
  Result<UniqueFd> share_fd(int fd, int root, Deadline deadline) override;
  // Of at most kMaxRegroupRanks ranks at the start.
  Status regroup(std::span<const int> members, Deadline deadline) override;
  bool can_leave_out() const override { return board_->nranks() <= kMaxRegroupRanks; }
  bool same_process() const override { return false; }
  std::vector<pid_t> processes() const override;

 private:
  struct Mine;
  // How soon a rank that waits sees that a peer's process has ended.
  static constexpr std::chrono::milliseconds kLookForEnded{5};

  // One round: writes this rank's slot, waits for everyone's and compares what they mean. The slots of round_
  // - 1 can then be read until the next round.
  Status round(const Mine& mine, std::span<const std::byte> data, Deadline deadline);
  // A round that tells the others what became of this rank's step.
  Status report(Mine mine, const Status& local, Deadline deadline);
  Status wait_for_all(std::uint32_t kind, Deadline deadline);
  Status compare_slots() const;
  bool all_have_arrived() const;
  // The failure that some rank reported in the last round, in rank order.
  Status first_error(const char* what) const;
  Status send_to_all(int fd, Deadline deadline) const;
  Result<UniqueFd> receive_fd(Deadline deadline) const;
  // Writes on the board which peers have ended, as far as the pidfds tell.
  void mark_the_ended() const;
  // Why `peer` will not come any more, or ok.
  Status end_of(int peer, const char* what) const;
  Status peers_failure() const;
  // Makes this exchange unusable and tells the others.
  Status fail(Status why);
  // Waits until all of `members` have come, and takes part in going on.
  Status gather(std::span<const int> members, Deadline deadline);
  // Takes this rank out of those that wait; false when the others have already gone on with it.
  bool give_up_regrouping() const;
  // After reading the others' slots: ranks that go on without this one do not wait until it has read.
  Status check_not_left_out() const;
  Status late(std::span<const int> members) const;
  std::uint32_t seats_of(std::span<const int> members) const;
  std::size_t seat(int rank) const {
    return static_cast<std::size_t>(seats_[static_cast<std::size_t>(rank)]);
  }
  BoardRank& at(int rank) const { return board_->rank(static_cast<int>(seat(rank))); }
  const BoardSlot& last_slot(int rank) const {
    return board_->slot(static_cast<int>(seat(rank)), round_ - 1);
  }
  std::uint64_t generation() const { return round_ >> 32; }

  std::shared_ptr<const SharedBoard> board_;
  std::vector<FdLine> lines_;  // by seat, as pidfds_
  int rank_;
  std::vector<int> seats_;  // of the ranks: their places on the board
  std::vector<UniqueFd> pidfds_;
  std::uint64_t round_ = 0;  // of all generations; each begins at a multiple of 2^32
  Status failed_;
};

}  // namespace nearlight::bootstrap
