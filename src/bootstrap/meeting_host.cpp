#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <thread>
#include <utility>

#include "base/fault_point.hpp"
#include "bootstrap/fd_message.hpp"
#include "bootstrap/meeting.hpp"
#include "bootstrap/meeting_word.hpp"
#include "bootstrap/pidfd.hpp"

namespace nearlight::bootstrap {

namespace {

using Kind = MeetingWord::Kind;

// Connections that have not said who they are. More than these, and the oldest is closed.
constexpr std::size_t kMaxSilent = 64;

class Host {
 public:
  Host(UniqueFd listener, const Party& party, Deadline deadline)
      : listener_(std::move(listener)), party_(party), deadline_(deadline) {}

  Result<Seat> run() {
    Result<Seat> seat = meet();
    if (!seat.ok()) {
      const MeetingWord word = MeetingWord::telling(Kind::refused, seat.status());
      // Whoever cannot be told any more sees the connection end.
      for (const Guest& guest : guests_)
        static_cast<void>(send_message(guest.socket.get(), word.bytes(), {}));
    }
    return seat;
  }

 private:
  struct Guest {
    UniqueFd socket;
    UniqueFd pidfd;
    pid_t pid = 0;
    int rank = -1;  // -1: has not said
    bool ready = false;
    bool gone = false;  // to be taken off the list
  };

  Result<Seat> meet() {
    while (missing() != 0) {
      NL_TRY(wait("did not come in time").with_context("the meeting under key \"" + party_.key + "\""));
      NL_TRY(accept_all());
      NL_TRY(hear_all());
    }
    // From here on nobody new can be heard, so that the next meeting under this key does not begin in this
    // one.
    listener_.reset();
    std::erase_if(guests_, [](const Guest& guest) { return guest.rank < 0; });
    NL_TRY_ASSIGN(Seat seat, welcome());
    while (unready() != 0) {
      NL_TRY(wait("came and then fell silent").with_context("the meeting under key \"" + party_.key + "\""));
      NL_TRY(hear_all());
    }
    const MeetingWord go = MeetingWord::of(Kind::go);
    // Who has ended since is noticed by its pidfd, by this rank as by the others.
    for (const Guest& guest : guests_) static_cast<void>(send_message(guest.socket.get(), go.bytes(), {}));
    return seat;
  }

  std::uint64_t all() const {
    return party_.nranks == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << party_.nranks) - 1;
  }
  std::uint64_t missing() const {
    std::uint64_t mask = all() & ~std::uint64_t{1};
    for (const Guest& guest : guests_) {
      if (guest.rank >= 0) mask &= ~(std::uint64_t{1} << guest.rank);
    }
    return mask;
  }
  std::uint64_t unready() const {
    std::uint64_t mask = 0;
    for (const Guest& guest : guests_) {
      if (!guest.ready) mask |= std::uint64_t{1} << guest.rank;
    }
    return mask;
  }

  // Until there is something to hear.
  Status wait(const char* what) {
    std::vector<pollfd> entries;
    if (listener_) entries.push_back({.fd = listener_.get(), .events = POLLIN, .revents = 0});
    for (const Guest& guest : guests_)
      entries.push_back({.fd = guest.socket.get(), .events = POLLIN, .revents = 0});
    // The deadline counts even while strangers keep coming.
    const int ready = deadline_.passed() ? 0 : ::poll(entries.data(), entries.size(), deadline_.left_ms());
    if (ready < 0 && errno != EINTR) return system_failure("poll", errno);
    if (ready != 0) return {};
    if (!deadline_.passed()) return {};
    const std::uint64_t waited_for = listener_ ? missing() : unready();
    return failure(Code::timeout, "rank(s) %s %s%s", ranks_in(waited_for).c_str(), what,
                   turned_away_.c_str());
  }

  Status accept_all() {
    // No more than that at a time: others may keep coming, and the rest must have its turn.
    for (std::size_t i = 0; i < kMaxSilent; ++i) {
      NL_TRY(fault_points::pass(fault_points::kMeetingAccept));
      UniqueFd socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (!socket) {
        if (errno == EAGAIN) return {};
        if (errno == EINTR || errno == ECONNABORTED) continue;
        return system_failure("accept4", errno);
      }
      NL_TRY(fault_points::pass(fault_points::kMeetingGuest));
      NL_TRY_ASSIGN(const PeerProcess peer, peer_of(socket.get()));
      if (peer.uid != ::geteuid()) {
        turn_away(peer, "of user " + std::to_string(peer.uid));
        continue;
      }
      Guest guest;
      guest.socket = std::move(socket);
      guest.pid = peer.pid;
      guests_.push_back(std::move(guest));
      const auto silent = [](const Guest& one) { return one.rank < 0; };
      if (static_cast<std::size_t>(std::count_if(guests_.begin(), guests_.end(), silent)) > kMaxSilent) {
        const auto oldest = std::find_if(guests_.begin(), guests_.end(), silent);
        turn_away({oldest->pid, peer.uid}, "that said nothing");
        guests_.erase(oldest);
      }
    }
    return {};
  }

  // What the text of a timeout tells about others that knocked.
  void turn_away(const PeerProcess& peer, const std::string& why) {
    turned_away_ = " (turned away: process " + std::to_string(peer.pid) + " " + why + ")";
  }

  Status hear_all() {
    Status status;
    for (Guest& guest : guests_) {
      while (status.ok() && !guest.gone) {
        MeetingWord word{};
        const ReceivedMessage received =
            receive_message(guest.socket.get(), std::as_writable_bytes(std::span(&word, 1)), 0);
        if (received.error == EAGAIN) break;
        status =
            received.error != 0 || received.bytes == 0 ? hear_end(guest) : hear(guest, word, received.bytes);
      }
    }
    std::erase_if(guests_, [](const Guest& guest) { return guest.gone; });
    return status;
  }

  Status hear_end(Guest& guest) {
    guest.gone = true;
    if (guest.rank < 0) return {};
    // A process that is being killed closes its sockets before it counts as ended.
    const bool ended = has_ended(guest.pidfd, std::min(kDying_ms, deadline_.left_ms()));
    return failure(Code::remote_error, "rank %d (process %d) %s during the meeting%s", guest.rank, guest.pid,
                   ended ? "has ended" : "has left", still_missing(guest.rank).c_str());
  }

  Status hear(Guest& guest, const MeetingWord& word, std::size_t bytes) {
    const Speaker speaker = speaker_of(word, bytes);
    if (guest.rank >= 0) {
      if (speaker == Speaker::same_build && word.kind == Kind::ready && !listener_ && !guest.ready) {
        guest.ready = true;
        if (unready() != 0) tell_progress(unready());
        return {};
      }
      if (speaker == Speaker::same_build && word.kind == Kind::leaves) {
        return failure(Code::remote_error, "rank %d (process %d) gave up: %s%s", guest.rank, guest.pid,
                       text_of(word.text).c_str(), still_missing(guest.rank).c_str());
      }
      return failure(Code::internal_error, "rank %d (process %d) said something that is no answer",
                     guest.rank, guest.pid);
    }
    if (speaker == Speaker::other_build) {
      return failure(Code::invalid_usage,
                     "process %d came as %s, rank 0 (process %d) is %s: all ranks must "
                     "run the same build",
                     guest.pid, build_of(word.head).c_str(), ::getpid(),
                     build_of(MeetingWord::of(Kind::hello).head).c_str());
    }
    if (speaker == Speaker::stranger || word.kind != Kind::hello || text_of(word.key) != party_.key) {
      turn_away({guest.pid, ::geteuid()}, "that is no rank of this meeting");
      guest.gone = true;
      return {};
    }
    return take_in(guest, word);
  }

  Status take_in(Guest& guest, const MeetingWord& hello) {
    const char* const key = party_.key.c_str();
    if (hello.pid != guest.pid) {
      return failure(
          Code::unsupported,
          "rank %d is process %d to itself and %d to rank 0: the ranks must share one PID namespace "
          "(container)",
          hello.rank, hello.pid, guest.pid);
    }
    if (hello.nranks != party_.nranks) {
      return failure(
          Code::invalid_usage,
          "nranks: rank 0 (process %d) comes for %d ranks, rank %d (process %d) for %d; both under "
          "key \"%s\"",
          ::getpid(), party_.nranks, hello.rank, guest.pid, hello.nranks, key);
    }
    if (hello.rank < 0 || hello.rank >= party_.nranks) {
      return failure(Code::invalid_usage, "rank: process %d comes as rank %d of %d", guest.pid, hello.rank,
                     party_.nranks);
    }
    pid_t other = hello.rank == 0 ? ::getpid() : 0;
    for (const Guest& one : guests_) {
      if (one.rank == hello.rank) other = one.pid;
    }
    if (other != 0) {
      return failure(Code::invalid_usage,
                     "rank %d came twice, as process %d and as process %d: two groups at one time need two "
                     "keys, and this one is \"%s\"",
                     hello.rank, other, guest.pid, key);
    }
    NL_TRY(fault_points::pass(fault_points::kMeetingGuestPidfd));
    guest.pidfd = open_pidfd(guest.pid);
    if (!guest.pidfd && errno == ESRCH) {
      guest.gone = true;
      return {};
    }
    if (!guest.pidfd) return system_failure("pidfd_open", errno);
    guest.rank = hello.rank;
    tell_progress(missing());
    return {};
  }

  // Whom this rank waits for, so that nobody takes it for the one that is missing.
  void tell_progress(std::uint64_t waits_for) const {
    MeetingWord word = MeetingWord::of(Kind::waiting);
    word.missing = waits_for;
    // Who does not read it will not answer either.
    for (const Guest& one : guests_) {
      if (one.rank >= 0) static_cast<void>(send_message(one.socket.get(), word.bytes(), {}));
    }
  }

  std::string still_missing(int but) const {
    const std::uint64_t mask = missing() & ~(std::uint64_t{1} << but);
    return !listener_ || mask == 0 ? "" : "; rank(s) " + ranks_in(mask) + " had not come";
  }

  // Gives everyone what it needs and keeps this rank's part.
  Result<Seat> welcome() {
    NL_TRY_ASSIGN(SharedBoard::Created created, SharedBoard::create(party_.nranks));
    NL_TRY_ASSIGN(std::vector<FdLine> lines, make_fd_lines(party_.nranks));
    Seat seat;
    seat.pidfds.resize(static_cast<std::size_t>(party_.nranks));
    NL_TRY(fault_points::pass(fault_points::kMeetingOwnPidfd));
    UniqueFd own = open_pidfd(::getpid());
    if (!own) return system_failure("pidfd_open", errno);
    MeetingWord word = MeetingWord::of(Kind::welcome);
    word.pids[0] = ::getpid();
    for (const Guest& guest : guests_) word.pids[guest.rank] = guest.pid;
    for (int r = 0; r < party_.nranks; ++r) created.board.rank(r).pid = word.pids[r];

    for (Guest& guest : guests_) {
      // hear_end still needs the guest's own.
      NL_TRY(fault_points::pass(fault_points::kMeetingDuplicate));
      UniqueFd pidfd(::fcntl(guest.pidfd.get(), F_DUPFD_CLOEXEC, 0));
      if (!pidfd) return system_failure("fcntl(F_DUPFD_CLOEXEC)", errno);
      seat.pidfds[static_cast<std::size_t>(guest.rank)] = std::move(pidfd);
    }

    for (const Guest& guest : guests_) {
      std::vector<int> fds = {created.memory.get()};
      for (int r = 0; r < party_.nranks; ++r) {
        const FdLine& line = lines[static_cast<std::size_t>(r)];
        fds.push_back((r == guest.rank ? line.receive : line.send).get());
      }
      fds.push_back(own.get());
      for (int r = 1; r < party_.nranks; ++r) {
        const auto of_rank = [r](const Guest& one) { return one.rank == r; };
        fds.push_back(std::find_if(guests_.begin(), guests_.end(), of_rank)->pidfd.get());
      }
      NL_TRY(send_welcome(guest, word, fds));
    }
    seat.board = std::make_shared<const SharedBoard>(std::move(created.board));
    seat.lines = std::move(lines);
    return seat;
  }

  Status send_welcome(const Guest& guest, const MeetingWord& word, const std::vector<int>& fds) const {
    for (;;) {
      NL_TRY(fault_points::pass(fault_points::kMeetingWelcome));
      const int error = send_message(guest.socket.get(), word.bytes(), fds);
      if (error == 0 || error == EPIPE || error == ECONNRESET) return {};  // hear_all tells its end
      // ETOOMANYREFS: this user has more descriptors under way than one process may have open; they become
      // fewer as they arrive.
      if ((error != EAGAIN && error != ETOOMANYREFS) || deadline_.passed())
        return system_failure("sendmsg to rank " + std::to_string(guest.rank), error);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }

  static constexpr int kDying_ms = 1000;

  UniqueFd listener_;
  const Party& party_;
  Deadline deadline_;
  std::vector<Guest> guests_;
  std::string turned_away_;
};

}  // namespace

Result<Seat> host_meeting(UniqueFd listener, const Party& party, Deadline deadline) {
  return Host(std::move(listener), party, deadline).run();
}

Result<PeerProcess> peer_of(int socket) {
  ucred credentials{};
  socklen_t length = sizeof credentials;
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &length) != 0)
    return system_failure("getsockopt(SO_PEERCRED)", errno);
  return PeerProcess{credentials.pid, credentials.uid};
}

std::string ranks_in(std::uint64_t mask) {
  std::string text;
  for (int r = 0; r < 64; ++r) {
    if ((mask >> r & 1) != 0) text += (text.empty() ? "" : ", ") + std::to_string(r);
  }
  return text;
}

}  // namespace nearlight::bootstrap
