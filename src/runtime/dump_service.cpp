#include "runtime/dump_service.hpp"

#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <exception>
#include <fstream>
#include <system_error>
#include <thread>
#include <utility>

#include "base/unique_fd.hpp"

namespace nearlight::runtime {

namespace {

// One asker may keep the thread this long.
constexpr std::int64_t kAnswerMs = 2000;

std::string name_prefix(pid_t pid) { return "nearlight-dump-" + std::to_string(pid) + "-"; }

struct Address {
  sockaddr_un socket{};
  socklen_t bytes = 0;

  explicit Address(const std::string& name) {
    socket.sun_family = AF_UNIX;
    const std::size_t length = std::min(name.size(), sizeof socket.sun_path - 1);
    std::memcpy(socket.sun_path + 1, name.data(), length);
    bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + length);
  }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&socket); }
};

Result<UniqueFd> make_socket() {
  UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket) return system_failure("socket(AF_UNIX)", errno);
  return socket;
}

Result<ucred> peer_of(int socket) {
  ucred peer{};
  socklen_t length = sizeof peer;
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0)
    return system_failure("getsockopt(SO_PEERCRED)", errno);
  return peer;
}

// Waits for `events`; false when the time is over.
bool wait_for(int fd, short events, Deadline deadline) {
  pollfd one{fd, events, 0};
  while (!deadline.passed()) {
    const int ready = ::poll(&one, 1, deadline.left_ms());
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) return false;
  }
  return false;
}

class SocketService final : public DumpService {
 public:
  SocketService(UniqueFd stop, UniqueFd listener, std::function<std::string()> text,
                std::function<void()> every_100ms)
      : stop_(std::move(stop)),
        listener_(std::move(listener)),
        text_(std::move(text)),
        every_100ms_(std::move(every_100ms)) {}

  ~SocketService() override {
    if (!thread_.joinable()) return;
    const std::uint64_t one = 1;
    while (::write(stop_.get(), &one, sizeof one) < 0 && errno == EINTR) {
    }
    thread_.join();
  }

  Status run() {
    try {
      thread_ = std::thread([this] { serve(); });
    } catch (const std::system_error& error) {
      return system_failure("starting the thread that answers `nearlight dump`", error.code().value());
    }
    return {};
  }

 private:
  void serve() {
    try {
      answer_all();
    } catch (const std::exception&) {
      // No memory for a text: the communicator goes on, and asking it finds nobody.
      listener_.reset();
    }
  }

  void answer_all() {
    pollfd fds[2] = {{stop_.get(), POLLIN, 0}, {listener_.get(), POLLIN, 0}};
    for (;;) {
      // Ends by the eventfd in the destructor.
      const int ready = ::poll(fds, 2, every_100ms_ ? 100 : -1);
      if (ready < 0 && errno == EINTR) continue;
      if (ready < 0 || fds[0].revents != 0) return;
      if (every_100ms_) every_100ms_();
      if (ready > 0 && fds[1].revents != 0) answer();
    }
  }

  void answer() const {
    const UniqueFd asker(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!asker) return;  // it has gone
    const auto peer = peer_of(asker.get());
    if (!peer.ok() || (peer->uid != ::geteuid() && peer->uid != 0)) return;
    const std::string text = text_();
    const Deadline deadline = Deadline::after_ms(kAnswerMs);
    for (std::size_t sent = 0; sent < text.size();) {
      const ssize_t now = ::send(asker.get(), text.data() + sent, text.size() - sent, MSG_NOSIGNAL);
      if (now >= 0) {
        sent += static_cast<std::size_t>(now);
      } else if (errno == EAGAIN) {
        if (!wait_for(asker.get(), POLLOUT, deadline)) return;
      } else if (errno != EINTR) {
        return;
      }
    }
  }

  UniqueFd stop_, listener_;
  std::function<std::string()> text_;
  std::function<void()> every_100ms_;
  std::thread thread_;
};

// The names of that process's services, as the kernel lists the sockets of this network namespace.
std::vector<std::string> services_of(pid_t pid) {
  std::vector<std::string> names;
  std::ifstream list("/proc/net/unix");
  for (std::string line; std::getline(list, line);) {
    const std::size_t at = line.find("@" + name_prefix(pid));
    // A connection of a listener stands there under the same name.
    if (at == std::string::npos) continue;
    std::string name = line.substr(at + 1);
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(std::move(name));
  }
  return names;
}

Status too_late(pid_t pid) {
  return failure(Code::timeout,
                 "process %d did not answer in time: it may be stopped, or its GPU's driver hangs",
                 static_cast<int>(pid));
}

Result<std::string> ask(pid_t pid, const std::string& name, Deadline deadline) {
  NL_TRY_ASSIGN(const UniqueFd socket, make_socket());
  const Address address(name);
  while (::connect(socket.get(), address.get(), address.bytes) != 0) {
    if (errno == EAGAIN) {  // others are asking, too
      if (deadline.passed()) return too_late(pid);
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    } else if (errno != EINTR) {
      return system_failure("connect to @" + name, errno);
    }
  }
  NL_TRY_ASSIGN(const ucred peer, peer_of(socket.get()));
  if (peer.pid != pid || (peer.uid != ::geteuid() && ::geteuid() != 0)) {
    return failure(Code::invalid_usage, "@%s belongs to process %d of user %u", name.c_str(),
                   static_cast<int>(peer.pid), peer.uid);
  }
  std::string text;
  for (char buffer[4096];;) {
    const ssize_t now = ::recv(socket.get(), buffer, sizeof buffer, 0);
    if (now > 0) {
      text.append(buffer, static_cast<std::size_t>(now));
    } else if (now == 0) {
      return text;
    } else if (errno == EAGAIN) {
      if (!wait_for(socket.get(), POLLIN, deadline)) return too_late(pid);
    } else if (errno != EINTR) {
      return system_failure("recv from @" + name, errno);
    }
  }
}

}  // namespace

Result<std::unique_ptr<DumpService>> DumpService::start(std::function<std::string()> text,
                                                        std::function<void()> every_100ms, bool answers) {
  static std::atomic<int> started{0};
  UniqueFd stop(::eventfd(0, EFD_CLOEXEC));
  if (!stop) return system_failure("eventfd", errno);
  UniqueFd listener;  // poll() passes over one that is not there
  if (answers) {
    NL_TRY_ASSIGN(listener, make_socket());
    const Address address(name_prefix(::getpid()) + std::to_string(++started));
    if (::bind(listener.get(), address.get(), address.bytes) != 0)
      return system_failure("bind of the socket for `nearlight dump`", errno);
    if (::listen(listener.get(), 8) != 0) return system_failure("listen", errno);
  }
  auto service = std::make_unique<SocketService>(std::move(stop), std::move(listener), std::move(text),
                                                 std::move(every_100ms));
  NL_TRY(service->run());
  return std::unique_ptr<DumpService>(std::move(service));
}

Result<std::vector<std::string>> ask_for_dumps(pid_t pid, Deadline deadline) {
  if (pid < 1) return failure(Code::invalid_argument, "PID: %d is none", static_cast<int>(pid));
  if (::kill(pid, 0) != 0 && errno == ESRCH) {
    return failure(Code::invalid_argument, "PID: there is no process %d", static_cast<int>(pid));
  }
  const auto names = services_of(pid);
  if (names.empty()) {
    return failure(Code::invalid_usage,
                   "process %d has no communicator that answers: it answers when it was started with "
                   "NEARLIGHT_DUMP=1 and has made one",
                   static_cast<int>(pid));
  }
  std::vector<std::string> texts;
  for (const std::string& name : names) {
    NL_TRY_ASSIGN(std::string text, ask(pid, name, deadline));
    texts.push_back(std::move(text));
  }
  return texts;
}

}  // namespace nearlight::runtime
