// Processes by descriptor: unlike a number, a pidfd never comes to mean another process.
#pragma once

#include <poll.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

#include "base/unique_fd.hpp"

namespace nearlight::bootstrap {

// Empty, with errno set, when there is no such process (ESRCH) or the kernel has no pidfds (before 5.3).
inline UniqueFd open_pidfd(pid_t pid) {
  return UniqueFd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
}

// True once the process has ended. Waits for it no longer than `limit_ms`.
inline bool has_ended(const UniqueFd& pidfd, int limit_ms = 0) {
  pollfd entry{.fd = pidfd.get(), .events = POLLIN, .revents = 0};
  return ::poll(&entry, 1, limit_ms) > 0 && entry.revents != 0;
}

}  // namespace nearlight::bootstrap
