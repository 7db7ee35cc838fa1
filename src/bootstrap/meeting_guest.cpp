#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/fault_point.hpp"
#include "bootstrap/fd_message.hpp"
#include "bootstrap/meeting.hpp"
#include "bootstrap/meeting_word.hpp"
#include "bootstrap/pidfd.hpp"

namespace nearlight::bootstrap {

namespace {

using Kind = MeetingWord::Kind;

class Guest {
 public:
  Guest(UniqueFd connection, const PeerProcess& host, const Party& party, Deadline deadline)
      : socket_(std::move(connection)), host_(host), party_(party), deadline_(deadline) {}

  Result<std::optional<Seat>> run() {
    auto seat = join();
    // Rank 0 tells the others why; that it has closed already is no news.
    if (!seat.ok() && !told_) static_cast<void>(say(MeetingWord::telling(Kind::leaves, seat.status())));
    return seat;
  }

 private:
  Result<std::optional<Seat>> join() {
    MeetingWord hello = MeetingWord::of(Kind::hello);
    hello.rank = party_.rank;
    hello.nranks = party_.nranks;
    hello.pid = ::getpid();
    put_text(hello.key, party_.key);
    // That rank 0 has closed is heard below, behind what it said before.
    static_cast<void>(say(hello));
    // Only now: a rank that has not said who it is would leave without being heard.
    NL_TRY(fault_points::pass(fault_points::kMeetingHostPidfd));
    pidfd_ = open_pidfd(host_.pid);
    if (!pidfd_ && errno == ESRCH) return std::optional<Seat>();
    if (!pidfd_) return system_failure("pidfd_open", errno);
    for (;;) {
      MeetingWord word{};
      // The board, a line and a pidfd for each rank.
      const std::size_t most = 1 + 2 * static_cast<std::size_t>(party_.nranks);
      ReceivedMessage received =
          receive_message(socket_.get(), std::as_writable_bytes(std::span(&word, 1)), most);
      if (received.error == EAGAIN) {
        NL_TRY(wait());
        continue;
      }
      if (received.error != 0 || received.bytes == 0) {
        if (!taken_in_) return std::optional<Seat>();
        return closed();
      }
      NL_TRY_ASSIGN(const bool go, hear(word, received));
      if (go) return std::optional<Seat>(std::move(seat_));
    }
  }

  int say(const MeetingWord& word) const { return send_message(socket_.get(), word.bytes(), {}); }
  std::string host_name() const { return "rank 0 (process " + std::to_string(host_.pid) + ")"; }

  Status wait() const {
    pollfd entry{.fd = socket_.get(), .events = POLLIN, .revents = 0};
    if (::poll(&entry, 1, deadline_.left_ms()) < 0 && errno != EINTR) return system_failure("poll", errno);
    if (!deadline_.passed() || (entry.revents & POLLIN) != 0) return {};
    std::string who = host_name() + " does not answer";
    // It may itself be the one that is stuck.
    const std::string source = ", by what " + host_name() + " last said";
    if (welcomed_ && missing_ != 0) {
      who = "rank(s) " + ranks_in(missing_) + " came and then fell silent" + source;
    } else if (welcomed_) {
      who += " any more";
    } else if (missing_ != 0) {
      who = "rank(s) " + ranks_in(missing_) + " did not come in time" + source;
    }
    return failure(Code::timeout, "the meeting under key \"%s\": %s", party_.key.c_str(), who.c_str());
  }

  Status closed() {
    told_ = true;
    const bool ended = has_ended(pidfd_, std::min(kDying_ms, deadline_.left_ms()));
    return failure(Code::remote_error, "%s %s during the meeting", host_name().c_str(),
                   ended ? "has ended" : "has left");
  }

  // True when the meeting is over.
  Result<bool> hear(const MeetingWord& word, ReceivedMessage& received) {
    switch (speaker_of(word, received.bytes)) {
      case Speaker::stranger:
        return failure(Code::invalid_usage,
                       "process %d has the name of the meeting under key \"%s\" and is no rank of nearlight",
                       host_.pid, party_.key.c_str());
      case Speaker::other_build:
        told_ = true;
        return failure(Code::invalid_usage,
                       "%s is %s, rank %d (process %d) is %s: all ranks must run the "
                       "same build",
                       host_name().c_str(), build_of(word.head).c_str(), party_.rank, ::getpid(),
                       build_of(MeetingWord::of(Kind::hello).head).c_str());
      case Speaker::same_build:
        break;
    }
    // One for each rank that comes, at most, and one for each that is ready.
    if (word.kind == Kind::waiting && ++progress_ <= party_.nranks) {
      taken_in_ = true;
      missing_ = word.missing;
      return false;
    }
    if (word.kind == Kind::refused) {
      told_ = true;
      // What the meeting fails for names the ranks; what rank 0 itself could not do names nobody.
      return word.status(word.code == static_cast<int>(Code::system_error) ? host_name() + ": " : "");
    }
    if (word.kind == Kind::welcome && taken_in_ && !welcomed_) {
      NL_TRY(sit_down(word, received));
      welcomed_ = true;
      missing_ = 0;
      progress_ = 0;
      static_cast<void>(say(MeetingWord::of(Kind::ready)));
      return false;
    }
    if (word.kind == Kind::go && welcomed_) return true;
    return failure(Code::internal_error, "%s said something that is no answer", host_name().c_str());
  }

  Status sit_down(const MeetingWord& word, ReceivedMessage& received) {
    const auto nranks = static_cast<std::size_t>(party_.nranks);
    NL_TRY(fault_points::pass(fault_points::kMeetingSeat));
    if (received.fds_cut) {
      return failure(Code::system_error,
                     "recvmsg: descriptors were cut off; %zu are needed (limit of open files?)",
                     1 + 2 * nranks);
    }
    if (received.fds.size() != 1 + 2 * nranks) {
      return failure(Code::internal_error, "%s gave %zu descriptors, not %zu", host_name().c_str(),
                     received.fds.size(), 1 + 2 * nranks);
    }
    if (word.pids[0] != host_.pid || word.pids[party_.rank] != ::getpid()) {
      return failure(
          Code::unsupported,
          "rank 0 is process %d to itself and %d to rank %d: the ranks must share one PID namespace "
          "(container)",
          word.pids[0], host_.pid, party_.rank);
    }
    NL_TRY_ASSIGN(SharedBoard board, SharedBoard::attach(received.fds[0].get(), party_.nranks));
    seat_.board = std::make_shared<const SharedBoard>(std::move(board));
    for (std::size_t r = 0; r < nranks; ++r) {
      FdLine line;
      const bool own = static_cast<int>(r) == party_.rank;
      (own ? line.receive : line.send) = std::move(received.fds[1 + r]);
      seat_.lines.push_back(std::move(line));
      seat_.pidfds.push_back(own ? UniqueFd() : std::move(received.fds[1 + nranks + r]));
    }
    return {};
  }

  // A process that is being killed closes its sockets before it counts as ended.
  static constexpr int kDying_ms = 1000;

  UniqueFd socket_;
  PeerProcess host_;
  const Party& party_;
  Deadline deadline_;
  UniqueFd pidfd_;
  std::uint64_t missing_ = 0;
  int progress_ = 0;  // how often that was told
  bool taken_in_ = false, welcomed_ = false;
  bool told_ = false;  // rank 0 knows why it ended
  Seat seat_;
};

}  // namespace

Result<std::optional<Seat>> join_meeting(UniqueFd connection, const PeerProcess& host, const Party& party,
                                         Deadline deadline) {
  return Guest(std::move(connection), host, party, deadline).run();
}

}  // namespace nearlight::bootstrap
