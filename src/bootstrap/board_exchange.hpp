// One rank's end of a group of processes that share a board: forked ones (fork_group.hpp) and those that were
// started separately (process_group.hpp).
#pragma once

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
  int nranks() const override { return board_->nranks(); }
  Status all_gather(std::span<const std::byte> mine, std::span<std::byte> all, Deadline deadline) override;
  Status barrier(Deadline deadline) override;
  Result<UniqueFd> share_fd(int fd, int root, Deadline deadline) override;
  bool same_process() const override { return false; }
  std::vector<pid_t> processes() const override;

 private:
  struct Mine;

  // One round: writes this rank's slot, waits for everyone's and compares what they mean. The slots of round_
  // - 1 can then be read until the next round.
  Status round(const Mine& mine, std::span<const std::byte> data, Deadline deadline);
  // A round that tells the others what became of this rank's step.
  Status report(Mine mine, const Status& local, Deadline deadline);
  Status wait_for_all(std::uint32_t kind, Deadline deadline);
  Status compare_slots() const;
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
  const BoardSlot& last_slot(int rank) const { return board_->slot(rank, round_ - 1); }

  std::shared_ptr<const SharedBoard> board_;
  std::vector<FdLine> lines_;
  int rank_;
  std::vector<UniqueFd> pidfds_;
  std::uint64_t round_ = 0;
  Status failed_;
};

}  // namespace nearlight::bootstrap
