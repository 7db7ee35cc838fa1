#include "bootstrap/process_group.hpp"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cinttypes>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <optional>
#include <thread>
#include <utility>

#include "base/fault_point.hpp"
#include "bootstrap/meeting.hpp"
#include "bootstrap/meeting_word.hpp"

namespace nearlight::bootstrap {

namespace {

// A key up to this long stands in the name as it is; of a longer one, its beginning and a hash.
constexpr std::size_t kPlainKeyBytes = 64;
static_assert(kMaxProcessRanks <= kMaxBoardRanks);

struct Address {
  sockaddr_un socket{};
  socklen_t bytes = 0;

  explicit Address(const std::string& name) {
    socket.sun_family = AF_UNIX;
    std::memcpy(socket.sun_path + 1, name.data(), name.size());
    bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&socket); }
};

Result<UniqueFd> make_socket() {
  NL_TRY(fault_points::pass(fault_points::kMeetingSocket));
  UniqueFd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket) return system_failure("socket(AF_UNIX)", errno);
  return socket;
}

// Empty when somebody else has the name.
Result<UniqueFd> listen_on(const Address& address) {
  NL_TRY_ASSIGN(UniqueFd socket, make_socket());
  NL_TRY(fault_points::pass(fault_points::kMeetingBind));
  if (::bind(socket.get(), address.get(), address.bytes) != 0) {
    if (errno == EADDRINUSE) return UniqueFd();
    return system_failure("bind", errno);
  }
  NL_TRY(fault_points::pass(fault_points::kMeetingListen));
  if (::listen(socket.get(), 128) != 0) return system_failure("listen", errno);
  return socket;
}

// Empty when nobody listens, or too many are knocking.
Result<UniqueFd> connect_to(const Address& address) {
  NL_TRY_ASSIGN(UniqueFd socket, make_socket());
  NL_TRY(fault_points::pass(fault_points::kMeetingConnect));
  while (::connect(socket.get(), address.get(), address.bytes) != 0) {
    if (errno == ECONNREFUSED || errno == EAGAIN) return UniqueFd();
    if (errno != EINTR) return system_failure("connect", errno);
  }
  return socket;
}

Result<Seat> meet(const Party& party, Deadline deadline) {
  const Address address(meeting_name(party.key));
  std::optional<PeerProcess> last;  // who had the name and did not take this rank in
  auto pause = std::chrono::microseconds(500);
  for (;;) {
    if (party.rank == 0) {
      NL_TRY_ASSIGN(UniqueFd listener, listen_on(address));
      if (listener) return host_meeting(std::move(listener), party, deadline);
    }
    // A second rank 0 knocks as well: then both groups learn that their keys are the same.
    NL_TRY_ASSIGN(UniqueFd connection, connect_to(address));
    if (connection) {
      NL_TRY(fault_points::pass(fault_points::kMeetingHost));
      NL_TRY_ASSIGN(const PeerProcess host, peer_of(connection.get()));
      if (host.uid != ::geteuid()) {
        return failure(Code::invalid_usage,
                       "process %d of user %u has the name of this meeting (%s), this is user %u", host.pid,
                       host.uid, meeting_name(party.key).c_str(), ::geteuid());
      }
      if (host.pid == 0) {
        return failure(Code::unsupported,
                       "rank 0 is in another PID namespace: the ranks must share one (container)");
      }
      NL_TRY_ASSIGN(std::optional<Seat> seat, join_meeting(std::move(connection), host, party, deadline));
      if (seat) return std::move(*seat);
      last = host;
    }
    if (deadline.passed()) {
      if (party.rank == 0 && !last) {
        return failure(Code::timeout,
                       "the meeting under key \"%s\": another process has the name @%s and does not listen",
                       party.key.c_str(), meeting_name(party.key).c_str());
      }
      const std::string seen =
          last ? " (process " + std::to_string(last->pid) + " had the name and closed it)" : "";
      return failure(Code::timeout,
                     "the meeting under key \"%s\": rank 0 did not come in time: nobody listens at @%s%s",
                     party.key.c_str(), meeting_name(party.key).c_str(), seen.c_str());
    }
    std::this_thread::sleep_for(std::min<std::chrono::nanoseconds>(pause, deadline.left()));
    pause = std::min(pause * 2, std::chrono::microseconds(20'000));
  }
}

Result<Seat> sit_alone() {
  NL_TRY_ASSIGN(SharedBoard::Created created, SharedBoard::create(1));
  created.board.rank(0).pid = ::getpid();
  Seat seat;
  NL_TRY_ASSIGN(seat.lines, make_fd_lines(1));
  seat.board = std::make_shared<const SharedBoard>(std::move(created.board));
  return seat;
}

Status check_place(const GroupPlace& place) {
  if (place.nranks < 1 || place.nranks > kMaxProcessRanks) {
    return failure(Code::invalid_argument, "nranks: %d is not between 1 and %d", place.nranks,
                   kMaxProcessRanks);
  }
  if (place.rank < 0 || place.rank >= place.nranks)
    return failure(Code::invalid_argument, "rank: %d is no rank of %d", place.rank, place.nranks);
  if (place.key.empty() || place.key.size() > kMaxKeyBytes) {
    return failure(Code::invalid_argument, "key: %zu bytes, not between 1 and %zu", place.key.size(),
                   kMaxKeyBytes);
  }
  for (const char c : place.key) {
    if (static_cast<unsigned char>(c) < 32 || c == 127)
      return failure(Code::invalid_argument, "key: has a control character (%d)", c);
  }
  return {};
}

}  // namespace

std::string meeting_name(const std::string& key) {
  std::string name = "nearlight/" + std::to_string(::geteuid()) + "/";
  if (key.size() <= kPlainKeyBytes) return name + key;
  std::uint64_t hash = 0xcbf29ce484222325u;  // FNV-1a
  for (const char c : key) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  char text[20];
  std::snprintf(text, sizeof text, "~%016" PRIx64, hash);
  return name + key.substr(0, kPlainKeyBytes - 17) + text;
}

Result<std::unique_ptr<Exchange>> join_process_group(const GroupPlace& place, Deadline deadline) {
  NL_TRY(check_place(place));
  const Party party{place.rank, place.nranks, place.key};
  NL_TRY_ASSIGN(Seat seat, place.nranks == 1 ? sit_alone() : meet(party, deadline));
  return std::unique_ptr<Exchange>(std::make_unique<BoardExchange>(
      std::move(seat.board), std::move(seat.lines), place.rank, std::move(seat.pidfds)));
}

}  // namespace nearlight::bootstrap
