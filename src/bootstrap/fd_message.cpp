#include "bootstrap/fd_message.hpp"

#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace nearlight::bootstrap {

namespace {

// Room for `fds` descriptors, aligned as control messages must be.
std::vector<cmsghdr> control_buffer(std::size_t fds) {
  return std::vector<cmsghdr>((CMSG_SPACE(fds * sizeof(int)) + sizeof(cmsghdr) - 1) / sizeof(cmsghdr));
}

}  // namespace

int send_message(int socket, std::span<const std::byte> data, std::span<const int> fds) {
  iovec part{.iov_base = const_cast<std::byte*>(data.data()), .iov_len = data.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  std::vector<cmsghdr> control;
  if (!fds.empty()) {
    control = control_buffer(fds.size());
    message.msg_control = control.data();
    message.msg_controllen = CMSG_SPACE(fds.size_bytes());
    cmsghdr* const header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(fds.size_bytes());
    std::memcpy(CMSG_DATA(header), fds.data(), fds.size_bytes());
  }
  while (::sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT) < 0) {
    if (errno != EINTR) return errno;
  }
  return 0;
}

ReceivedMessage receive_message(int socket, std::span<std::byte> buffer, std::size_t max_fds) {
  ReceivedMessage received;
  iovec part{.iov_base = buffer.data(), .iov_len = buffer.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  std::vector<cmsghdr> control;
  if (max_fds > 0) {
    control = control_buffer(max_fds);
    message.msg_control = control.data();
    message.msg_controllen = CMSG_SPACE(max_fds * sizeof(int));
  }
  ssize_t length;
  bool reset = false;
  while ((length = ::recvmsg(socket, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT | MSG_TRUNC)) < 0) {
    if (errno == EINTR) continue;
    // Told once, and before what was sent ahead of the end.
    if (errno == ECONNRESET && !std::exchange(reset, true)) continue;
    received.error = errno;
    return received;
  }
  received.bytes = static_cast<std::size_t>(length);
  // The kernel drops descriptors that do not fit under this process's limit and says so here.
  received.fds_cut = (message.msg_flags & MSG_CTRUNC) != 0;
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr; header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    for (std::size_t at = CMSG_LEN(0); at + sizeof(int) <= header->cmsg_len; at += sizeof(int)) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(header) + (at - CMSG_LEN(0)), sizeof fd);
      received.fds.emplace_back(fd);
    }
  }
  return received;
}

}  // namespace nearlight::bootstrap
