// The two sides of a meeting of processes, see process_group.hpp.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/deadline.hpp"
#include "base/status.hpp"
#include "base/unique_fd.hpp"
#include "bootstrap/board_exchange.hpp"
#include "bootstrap/shared_board.hpp"

namespace nearlight::bootstrap {

// Who comes.
struct Party {
  int rank;
  int nranks;
  std::string key;
};

// What each takes home: all that an exchange needs.
struct Seat {
  std::shared_ptr<const SharedBoard> board;
  std::vector<FdLine> lines;
  std::vector<UniqueFd> pidfds;  // its own is empty
};

// The process and user at the other end of a connection.
struct PeerProcess {
  pid_t pid;
  uid_t uid;
};
Result<PeerProcess> peer_of(int socket);

// Rank 0's side: takes the others in on `listener` until all are there, at the latest at the deadline. Every
// one that has come learns how it ended.
Result<Seat> host_meeting(UniqueFd listener, const Party& party, Deadline deadline);

// The others' side, on a connection to `host`. No seat and no failure: the other end closed before it took
// this rank in, as it does when it has no more use for the name; try again.
Result<std::optional<Seat>> join_meeting(UniqueFd connection, const PeerProcess& host, const Party& party,
                                         Deadline deadline);

// "1, 3" for the bits 1 and 3.
std::string ranks_in(std::uint64_t mask);

}  // namespace nearlight::bootstrap
