#include "runtime/peer_watch.hpp"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "base/fault_point.hpp"
#include "base/unique_fd.hpp"
#include "bootstrap/pidfd.hpp"

namespace nearlight::runtime {

namespace {

class PidfdWatch final : public PeerWatch {
 public:
  PidfdWatch(UniqueFd stop, std::vector<UniqueFd> pidfds, std::vector<std::pair<int, pid_t>> peers,
             std::function<void(int, pid_t)> on_death)
      : stop_(std::move(stop)),
        pidfds_(std::move(pidfds)),
        peers_(std::move(peers)),
        on_death_(std::move(on_death)) {}

  ~PidfdWatch() override {
    if (!thread_.joinable()) return;
    const std::uint64_t one = 1;
    while (::write(stop_.get(), &one, sizeof one) < 0 && errno == EINTR) {
    }
    thread_.join();
  }

  Status run() {
    NL_TRY(fault_points::pass(fault_points::kWatchThread));
    try {
      thread_ = std::thread([this] { watch(); });
    } catch (const std::system_error& error) {
      return system_failure("starting the thread that watches the peers", error.code().value());
    }
    return {};
  }

 private:
  void watch() {
    std::vector<pollfd> fds{{stop_.get(), POLLIN, 0}};
    for (const UniqueFd& fd : pidfds_) fds.push_back({fd.get(), POLLIN, 0});
    for (;;) {
      const int ready = ::poll(fds.data(), fds.size(), -1);  // ends by the eventfd in the destructor
      if (ready < 0 && errno == EINTR) continue;
      if (ready < 0 || fds[0].revents != 0) return;
      for (std::size_t i = 1; i < fds.size(); ++i) {
        if (fds[i].revents != 0) {
          on_death_(peers_[i - 1].first, peers_[i - 1].second);
          return;
        }
      }
    }
  }

  UniqueFd stop_;
  std::vector<UniqueFd> pidfds_;
  std::vector<std::pair<int, pid_t>> peers_;
  std::function<void(int, pid_t)> on_death_;
  std::thread thread_;
};

}  // namespace

Result<std::unique_ptr<PeerWatch>> PeerWatch::start(std::span<const pid_t> processes, int own_rank,
                                                    std::function<void(int, pid_t)> on_death) {
  NL_TRY(fault_points::pass(fault_points::kWatchStop));
  UniqueFd stop(::eventfd(0, EFD_CLOEXEC));
  if (!stop) return system_failure("eventfd", errno);
  std::vector<UniqueFd> pidfds;
  std::vector<std::pair<int, pid_t>> peers;
  for (std::size_t rank = 0; rank < processes.size(); ++rank) {
    if (static_cast<int>(rank) == own_rank) continue;
    NL_TRY(fault_points::pass(fault_points::kWatchPidfd));
    UniqueFd fd = bootstrap::open_pidfd(processes[rank]);
    if (!fd && errno == ESRCH) {
      return failure(Code::remote_error, "rank %zu: its process %d has ended", rank,
                     static_cast<int>(processes[rank]));
    }
    if (!fd) return system_failure("pidfd_open", errno);
    pidfds.push_back(std::move(fd));
    peers.emplace_back(static_cast<int>(rank), processes[rank]);
  }
  auto watch =
      std::make_unique<PidfdWatch>(std::move(stop), std::move(pidfds), std::move(peers), std::move(on_death));
  NL_TRY(watch->run());
  return std::unique_ptr<PeerWatch>(std::move(watch));
}

}  // namespace nearlight::runtime
