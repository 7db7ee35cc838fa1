// One message with file descriptors over a SOCK_SEQPACKET Unix socket. Neither call waits.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "base/unique_fd.hpp"

namespace nearlight::bootstrap {

// 0, or the errno of the send: EAGAIN when the other side's queue is full, EPIPE or ECONNRESET when it has
// closed. At most 253 descriptors, which is what Linux carries in one message.
int send_message(int socket, std::span<const std::byte> data, std::span<const int> fds);

struct ReceivedMessage {
  int error = 0;              // the errno of the receive; EAGAIN when there is nothing
  std::size_t bytes = 0;      // of the message, also of what did not fit; 0: the other side has closed
  bool fds_cut = false;       // descriptors were lost: more than `max_fds`, or this process may not open more
  std::vector<UniqueFd> fds;  // close-on-exec
};
// Fills `buffer` as far as the message goes.
ReceivedMessage receive_message(int socket, std::span<std::byte> buffer, std::size_t max_fds);

}  // namespace nearlight::bootstrap
