// The memory that the processes of a group share: who has arrived, what it brought, who is gone. Only
// lock-free atomics, so that a process may be killed at any instruction without holding up the others.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>

#include "base/deadline.hpp"
#include "base/status.hpp"
#include "base/unique_fd.hpp"

namespace nearlight::bootstrap {

struct BoardSlot {
  static constexpr std::size_t kBytes = 16 * 1024;
  std::uint32_t kind;
  std::int32_t root;
  std::int32_t error;  // the code of what this rank's step failed with (its text is in data), 0: it went well
  std::uint64_t total_bytes;
  std::byte data[kBytes];
};

struct alignas(64) BoardRank {
  // Rounds this rank has arrived in. Stored with release after the slot is written; read with acquire before
  // it is copied.
  std::atomic<std::uint64_t> arrived;
  // 1: the rank's Exchange was destroyed (its process may go on). Release after its last arrival, acquire in
  // the wait.
  std::atomic<std::uint32_t> left;
  // kEndedSoAndSo: the parent has seen the process end; end_signal and end_code say how. kEnded: a peer has.
  // Release after those two, acquire in the wait.
  static constexpr std::uint32_t kEndedSoAndSo = 1, kEnded = 2;
  std::atomic<std::uint32_t> dead;
  std::int32_t end_signal;  // 0: by exit
  std::int32_t end_code;
  pid_t pid;  // written before the ranks begin
  // The set of ranks (a bit each) that this one last wanted to regroup with, until it has; see BoardHeader.
  std::atomic<std::uint32_t> wanted;
  char failure[200];  // this rank's text for the others, see first_failure
};

struct BoardHeader {
  std::atomic<std::uint32_t> gate;  // 0 wait, 1 go; opened by the parent with release when all pids are there
  std::atomic<std::uint32_t> bell;  // rung after every change that someone may wait for
  // Whose failure came first in which generation: generation << 32 | that rank + 1; 0 in the lower half:
  // none. One of an earlier generation counts for none. Set with release after the rank's text is there, read
  // with acquire before the text is, so that nobody waits for a rank that was killed while it wrote.
  std::atomic<std::uint64_t> first_failure;
  // Who waits in regroup(): generation << 32 | ranks that are left out << 16 | ranks that wait, a bit each.
  // One compare-and-swap each to come, to give up and, for whoever sees that all wait, to take everyone
  // along: that takes the bits of all out, so that a rank which finds its own gone knows that the rest have
  // gone on. Acquire and release: what a rank did before it came is done for all that went on with it.
  std::atomic<std::uint64_t> regroup;
};
inline constexpr int kMaxRegroupRanks = 16;

static_assert(std::atomic<std::uint32_t>::is_always_lock_free &&
              std::atomic<std::uint64_t>::is_always_lock_free);

inline constexpr int kMaxBoardRanks = 64;

// A mapping that children inherit, and others attach to. Not copyable; unmapped in each process that destroys
// it.
class SharedBoard {
 public:
  struct Created;
  static Result<Created> create(int nranks);
  // Maps what another process created for as many ranks; Code::internal_error when it has another size.
  static Result<SharedBoard> attach(int memory, int nranks);
  SharedBoard(SharedBoard&& other) noexcept;
  SharedBoard& operator=(SharedBoard&&) = delete;
  ~SharedBoard();

  int nranks() const { return nranks_; }
  BoardHeader& header() const { return *reinterpret_cast<BoardHeader*>(base_); }
  BoardRank& rank(int r) const {
    return *reinterpret_cast<BoardRank*>(base_ + kHeaderBytes + offset_of_rank(r));
  }
  // Two slots a rank, by the parity of the round. Two are enough: a rank writes its slot of round k + 2 only
  // after it has seen everyone arrive in round k + 1, and they arrive there after they have read round k.
  BoardSlot& slot(int r, std::uint64_t round) const {
    return *reinterpret_cast<BoardSlot*>(base_ + kHeaderBytes + offset_of_rank(nranks_) +
                                         (static_cast<std::size_t>(r) * 2 + round % 2) * sizeof(BoardSlot));
  }

  // Wakes everyone who waits for the bell.
  void ring() const;
  // Sleeps while the bell still has the value `seen`, no longer than `slice` and the deadline. May wake
  // early. The usual slice only guards against a process that was killed between a store and its ring.
  static constexpr std::chrono::milliseconds kSlice{100};
  void wait_for_bell(std::uint32_t seen, Deadline deadline, std::chrono::milliseconds slice = kSlice) const;

 private:
  static constexpr std::size_t kHeaderBytes = 64;
  static_assert(sizeof(BoardHeader) <= kHeaderBytes && kHeaderBytes % alignof(BoardRank) == 0);
  static std::size_t bytes_for(int nranks) {
    return kHeaderBytes + offset_of_rank(nranks) + static_cast<std::size_t>(nranks) * 2 * sizeof(BoardSlot);
  }
  static Result<SharedBoard> map(int memory, int nranks);
  static std::size_t offset_of_rank(int r) { return static_cast<std::size_t>(r) * sizeof(BoardRank); }

  SharedBoard(char* base, std::size_t bytes, int nranks) : base_(base), bytes_(bytes), nranks_(nranks) {}
  char* base_;
  std::size_t bytes_;
  int nranks_;
};

struct SharedBoard::Created {
  SharedBoard board;
  UniqueFd memory;  // to be attached to; the board itself needs it no more
};

}  // namespace nearlight::bootstrap
