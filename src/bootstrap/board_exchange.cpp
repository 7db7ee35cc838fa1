#include "bootstrap/board_exchange.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <utility>

#include "base/fault_point.hpp"
#include "bootstrap/fd_message.hpp"
#include "bootstrap/pidfd.hpp"

namespace nearlight::bootstrap {

namespace {

enum Kind : std::uint32_t { kAllGather, kBarrier, kShareFd, kShareFdDone };

const char* name_of(std::uint32_t kind) {
  switch (kind) {
    case kAllGather:
      return "all_gather";
    case kBarrier:
      return "barrier";
    case kShareFd:
    case kShareFdDone:
      return "share_fd";
  }
  return "?";
}

// Waits until the socket is ready for `events`.
Status wait_for_socket(int fd, short events, const char* what, Deadline deadline) {
  pollfd entry{.fd = fd, .events = events, .revents = 0};
  for (;;) {
    const int ready = ::poll(&entry, 1, deadline.left_ms());
    if (ready > 0) return {};
    if (ready == 0) return failure(Code::timeout, "share_fd: %s did not get ready in time", what);
    if (errno != EINTR) return system_failure("share_fd: poll", errno);
  }
}

// A text for the others in a slot, with its end.
constexpr std::size_t kTextBytes = 200;

Result<UniqueFd> duplicate(int fd, int rank) {
  NL_TRY(fault_points::pass(fault_points::kShareDuplicate));
  UniqueFd copy(::fcntl(fd, F_DUPFD_CLOEXEC, 0));
  if (!copy)
    return system_failure(
        "share_fd: fcntl(F_DUPFD_CLOEXEC) of rank " + std::to_string(rank) + "'s descriptor", errno);
  return copy;
}

}  // namespace

struct BoardExchange::Mine {
  std::uint32_t kind;
  std::uint64_t total_bytes = 0;
  int root = 0;
  int error = 0;
};

Result<std::vector<FdLine>> make_fd_lines(int nranks) {
  std::vector<FdLine> lines(static_cast<std::size_t>(nranks));
  for (FdLine& line : lines) {
    NL_TRY(fault_points::pass(fault_points::kBoardLine));
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
      return system_failure("socketpair", errno);
    }
    line.send = UniqueFd(ends[0]);
    line.receive = UniqueFd(ends[1]);
  }
  return lines;
}

BoardExchange::BoardExchange(std::shared_ptr<const SharedBoard> board, std::vector<FdLine> lines, int rank,
                             std::vector<UniqueFd> pidfds)
    : board_(std::move(board)),
      lines_(std::move(lines)),
      rank_(rank),
      seats_(all_members(board_->nranks())),
      pidfds_(std::move(pidfds)) {
  for (int r = 0; r < nranks(); ++r) {
    FdLine& line = lines_[static_cast<std::size_t>(r)];
    // With its own send end closed here, a rank's line dies with the rank.
    (r == rank_ ? line.send : line.receive).reset();
  }
}

BoardExchange::~BoardExchange() {
  at(rank_).left.store(1, std::memory_order_release);
  board_->ring();
}

std::vector<pid_t> BoardExchange::processes() const {
  std::vector<pid_t> pids;
  for (int r = 0; r < nranks(); ++r) pids.push_back(at(r).pid);
  return pids;
}

Status BoardExchange::all_gather(std::span<const std::byte> mine, std::span<std::byte> all,
                                 Deadline deadline) {
  if (all.size() != mine.size() * static_cast<std::size_t>(nranks())) {
    return fail(failure(Code::invalid_argument, "all: %zu bytes for %d ranks of %zu bytes", all.size(),
                        nranks(), mine.size()));
  }
  std::size_t offset = 0;
  do {  // one round even for no bytes: the call is a meeting too
    const std::size_t bytes = std::min(BoardSlot::kBytes, mine.size() - offset);
    NL_TRY(round({.kind = kAllGather, .total_bytes = mine.size()}, mine.subspan(offset, bytes), deadline));
    if (bytes == 0) break;
    for (int r = 0; r < nranks(); ++r) {
      std::memcpy(all.data() + static_cast<std::size_t>(r) * mine.size() + offset, last_slot(r).data, bytes);
    }
    if (Status here = check_not_left_out(); !here.ok()) return fail(std::move(here));
    offset += bytes;
  } while (offset < mine.size());
  return {};
}

Status BoardExchange::barrier(Deadline deadline) { return round({.kind = kBarrier}, {}, deadline); }

Result<UniqueFd> BoardExchange::share_fd(int fd, int root, Deadline deadline) {
  if (root < 0 || root >= nranks()) {
    return fail(failure(Code::invalid_argument, "root: %d is no rank of %d", root, nranks()));
  }
  if (!failed_.ok()) return failed_;

  // The root posts the descriptor first, so that after the round it lies in every line. Every rank goes
  // through both rounds whatever happened to it, so that all get the descriptor or none does.
  UniqueFd mine;
  Status local;
  if (rank_ == root) {
    auto copy = duplicate(fd, rank_);
    local = copy.status();
    if (copy.ok()) {
      mine = std::move(copy).value();
      local = send_to_all(mine.get(), deadline);
    }
  }
  NL_TRY(report({.kind = kShareFd, .root = root}, local, deadline));
  if (!local.ok()) return fail(std::move(local));
  if (Status sent = first_error("cannot give its descriptor"); !sent.ok()) return fail(std::move(sent));

  if (rank_ != root) {
    auto received = receive_fd(deadline);
    local = received.status();
    if (received.ok()) mine = std::move(received).value();
  }
  NL_TRY(report({.kind = kShareFdDone, .root = root}, local, deadline));
  if (!local.ok()) return fail(std::move(local));
  if (Status got = first_error("did not get the descriptor"); !got.ok()) return fail(std::move(got));
  return mine;
}

Status BoardExchange::report(Mine mine, const Status& local, Deadline deadline) {
  mine.error = static_cast<int>(local.code());
  const std::string text = local.text().substr(0, kTextBytes - 1) + '\0';
  return round(mine, std::as_bytes(std::span(text)), deadline);
}

Status BoardExchange::send_to_all(int fd, Deadline deadline) const {
  for (int peer = 0; peer < nranks(); ++peer) {
    if (peer == rank_) continue;
    const int line = lines_[seat(peer)].send.get();
    NL_TRY(fault_points::pass(fault_points::kShareSend));
    int error = 0;
    while ((error = send_message(line, std::as_bytes(std::span(&round_, 1)), std::span(&fd, 1))) != 0) {
      if (error == EPIPE || error == ECONNRESET) {
        mark_the_ended();
        NL_TRY(end_of(peer, "share_fd"));
        return failure(Code::remote_error, "share_fd: rank %d has closed its line", peer);
      }
      if (error != EAGAIN) return system_failure("share_fd: sendmsg to rank " + std::to_string(peer), error);
      NL_TRY(wait_for_socket(line, POLLOUT, ("the line to rank " + std::to_string(peer)).c_str(), deadline));
    }
  }
  return {};
}

Result<UniqueFd> BoardExchange::receive_fd(Deadline deadline) const {
  const int line = lines_[seat(rank_)].receive.get();
  NL_TRY(fault_points::pass(fault_points::kShareReceive));
  std::uint64_t sent_in = 0;
  for (;;) {
    ReceivedMessage received = receive_message(line, std::as_writable_bytes(std::span(&sent_in, 1)), 1);
    if (received.error == EAGAIN) {
      NL_TRY(wait_for_socket(line, POLLIN, "this rank's line", deadline));
      continue;
    }
    if (received.error != 0) return system_failure("share_fd: recvmsg", received.error);
    if (received.fds_cut) {
      return failure(Code::system_error,
                     "share_fd: recvmsg: the descriptor was cut off (limit of open files?)");
    }
    // Of a round that was broken off before the ranks regrouped.
    if (received.bytes == sizeof sent_in && sent_in >> 32 < generation()) continue;
    if (received.bytes != sizeof sent_in || received.fds.size() != 1)
      return failure(Code::internal_error, "share_fd: recvmsg brought no descriptor");
    return std::move(received.fds[0]);
  }
}

Status BoardExchange::round(const Mine& mine, std::span<const std::byte> data, Deadline deadline) {
  if (!failed_.ok()) return failed_;
  if (Status peers = peers_failure(); !peers.ok()) return fail(std::move(peers));
  if (Status here = fault_points::pass(fault_points::kExchangeRound); !here.ok())
    return fail(std::move(here));
  BoardSlot& slot = board_->slot(static_cast<int>(seat(rank_)), round_);
  slot.kind = mine.kind;
  slot.root = mine.root;
  slot.error = mine.error;
  slot.total_bytes = mine.total_bytes;
  if (!data.empty()) std::memcpy(slot.data, data.data(), data.size());
  ++round_;
  // Release: the slot comes before its announcement. Pairs with the acquire load in wait_for_all.
  at(rank_).arrived.store(round_, std::memory_order_release);
  board_->ring();
  if (Status waited = wait_for_all(mine.kind, deadline); !waited.ok()) return fail(std::move(waited));
  if (Status same = compare_slots(); !same.ok()) {
    NL_TRY(check_not_left_out());
    return fail(std::move(same));
  }
  return {};
}

Status BoardExchange::wait_for_all(std::uint32_t kind, Deadline deadline) {
  for (;;) {
    // The bell first: what changes after this load changes the bell, and the sleep below then ends at once.
    const std::uint32_t bell = board_->header().bell.load(std::memory_order_acquire);
    mark_the_ended();
    std::string missing;
    Status gone;
    for (int peer = 0; peer < nranks(); ++peer) {
      // Its end before its arrival: a rank that arrived and then ended has arrived.
      Status end = end_of(peer, name_of(kind));
      if (at(peer).arrived.load(std::memory_order_acquire) >= round_) continue;
      missing += (missing.empty() ? "" : ", ") + std::to_string(peer);
      if (gone.ok()) gone = std::move(end);
    }
    if (missing.empty()) return {};
    // What was recorded first is the cause; a rank that left because of it left after it was recorded. A peer
    // may have come, have seen all come and have begun anew since the look above: what it saw before it
    // recorded that is seen here after the record.
    if (Status peers = peers_failure(); !peers.ok()) return all_have_arrived() ? Status() : peers;
    if (!gone.ok()) return gone;
    if (deadline.passed()) {
      return failure(Code::timeout, "%s: no answer in time from rank(s) %s", name_of(kind), missing.c_str());
    }
    // Nobody rings for a process that ends unless a parent watches it.
    board_->wait_for_bell(bell, deadline, pidfds_.empty() ? SharedBoard::kSlice : kLookForEnded);
  }
}

bool BoardExchange::all_have_arrived() const {
  bool all = true;
  for (int peer = 0; peer < nranks(); ++peer)
    all = all && at(peer).arrived.load(std::memory_order_acquire) >= round_;
  return all;
}

Status BoardExchange::compare_slots() const {
  const BoardSlot& first = last_slot(0);
  for (int r = 1; r < nranks(); ++r) {
    const BoardSlot& slot = last_slot(r);
    if (slot.kind != first.kind) {
      return failure(Code::invalid_usage, "rank 0 calls %s while rank %d calls %s", name_of(first.kind), r,
                     name_of(slot.kind));
    }
    if (slot.total_bytes != first.total_bytes) {
      return failure(Code::invalid_usage, "all_gather: rank 0 gives %zu bytes, rank %d gives %zu",
                     static_cast<std::size_t>(first.total_bytes), r,
                     static_cast<std::size_t>(slot.total_bytes));
    }
    if (slot.root != first.root) {
      return failure(Code::invalid_usage, "share_fd: rank 0 names rank %d as root, rank %d names rank %d",
                     first.root, r, slot.root);
    }
  }
  return {};
}

Status BoardExchange::first_error(const char* what) const {
  for (int r = 0; r < nranks(); ++r) {
    const BoardSlot& slot = last_slot(r);
    if (slot.error == 0) continue;
    // The end may be missing on a board that was overwritten.
    const std::string_view text(reinterpret_cast<const char*>(slot.data), kTextBytes);
    return failure(static_cast<Code>(slot.error), "rank %d %s: %s", r, what,
                   std::string(text.substr(0, text.find('\0'))).c_str());
  }
  return {};
}

void BoardExchange::mark_the_ended() const {
  for (std::size_t peer = 0; peer < pidfds_.size(); ++peer) {
    if (!pidfds_[peer] || !has_ended(pidfds_[peer])) continue;
    std::uint32_t running = 0;
    // Release: nothing is told with it, but it takes the place of the parent's store.
    board_->rank(static_cast<int>(peer))
        .dead.compare_exchange_strong(running, BoardRank::kEnded, std::memory_order_release);
  }
}

Status BoardExchange::end_of(int peer, const char* what) const {
  const BoardRank& state = at(peer);
  const std::uint32_t dead = state.dead.load(std::memory_order_acquire);
  if (dead == BoardRank::kEnded)
    return failure(Code::remote_error, "%s: rank %d (process %d) has ended", what, peer, state.pid);
  if (dead != 0) {
    if (state.end_signal != 0) {
      return failure(Code::remote_error, "%s: rank %d (process %d) was ended by signal %d", what, peer,
                     state.pid, state.end_signal);
    }
    return failure(Code::remote_error, "%s: rank %d (process %d) has ended with exit code %d", what, peer,
                   state.pid, state.end_code);
  }
  if (state.left.load(std::memory_order_acquire) != 0) {
    return failure(Code::remote_error, "%s: rank %d (process %d) has left the group", what, peer, state.pid);
  }
  return {};
}

Status BoardExchange::peers_failure() const {
  const std::uint64_t first = board_->header().first_failure.load(std::memory_order_acquire);
  const auto number = static_cast<std::uint32_t>(first);
  if (number == 0 || first >> 32 != generation()) return {};
  const auto peer = std::find(seats_.begin(), seats_.end(), static_cast<int>(number - 1));
  // A rank that stores where it should not must not take the others with it.
  if (peer == seats_.end()) {
    return failure(Code::internal_error, "the board of the group was overwritten: rank %u of %d has failed",
                   number - 1, board_->nranks());
  }
  const auto& text = board_->rank(*peer).failure;
  return failure(Code::remote_error, "rank %d gave up: %.*s", static_cast<int>(peer - seats_.begin()),
                 static_cast<int>(sizeof text), text);
}

Status BoardExchange::fail(Status why) {
  if (!failed_.ok()) return failed_;
  failed_ = std::move(why);
  BoardRank& mine = at(rank_);
  std::snprintf(mine.failure, sizeof mine.failure, "%s", failed_.text().c_str());
  auto& first = board_->header().first_failure;
  std::uint64_t known = first.load(std::memory_order_acquire);
  const std::uint64_t ours = generation() << 32 | (seat(rank_) + 1);
  while (known >> 32 != generation() || static_cast<std::uint32_t>(known) == 0) {
    if (!first.compare_exchange_weak(known, ours, std::memory_order_acq_rel)) continue;
    board_->ring();
    break;
  }
  return failed_;
}

}  // namespace nearlight::bootstrap
