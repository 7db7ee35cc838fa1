#include "runtime/peer_watch.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <vector>

#include "tests/support/ranks.hpp"

namespace nearlight::runtime {
namespace {

using namespace std::chrono_literals;

constexpr auto kSoon = 30s;

// Processes that do nothing until they are killed; gone with this object.
class Children {
 public:
  explicit Children(int count) {
    for (int i = 0; i < count; ++i) {
      const pid_t pid = ::fork();
      if (pid == 0) {
        for (;;) ::pause();
      }
      pids.push_back(pid);
    }
  }
  ~Children() {
    for (const pid_t pid : pids) {
      if (pid > 0) {
        ::kill(pid, SIGKILL);
        ::waitpid(pid, nullptr, 0);
      }
    }
  }
  void kill_and_reap(std::size_t index) {
    ::kill(pids[index], SIGKILL);
    ::waitpid(pids[index], nullptr, 0);
    pids[index] = -1;
  }
  std::vector<pid_t> pids;
};

std::ptrdiff_t open_files() {
  std::ptrdiff_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    static_cast<void>(entry);
    ++count;
  }
  return count;
}

struct Seen {
  std::atomic<int> calls = 0, rank = -1, pid = 0;
  std::function<void(int, pid_t)> callback() {
    return [this](int peer, pid_t process) {
      rank = peer;
      pid = process;
      ++calls;
    };
  }
};

TEST(PeerWatch, NoticesAKilledPeerOnce) {
  Children children(3);
  const std::vector<pid_t> all = {::getpid(), children.pids[0], children.pids[1], children.pids[2]};
  Seen seen;
  auto watch = PeerWatch::start(all, 0, seen.callback());
  ASSERT_TRUE(watch.ok()) << watch.status().to_string();
  EXPECT_EQ(seen.calls, 0);
  ::kill(children.pids[1], SIGKILL);  // not even reaped yet
  ASSERT_TRUE(test::wait_until([&] { return seen.calls == 1; }, kSoon));
  EXPECT_EQ(seen.rank, 2);
  EXPECT_EQ(seen.pid, children.pids[1]);
  children.kill_and_reap(0);
  (*watch).reset();
  EXPECT_EQ(seen.calls, 1);
}

TEST(PeerWatch, AStoppedPeerIsNotGone) {
  Children children(1);
  Seen seen;
  auto watch = PeerWatch::start(std::vector<pid_t>{children.pids[0], ::getpid()}, 1, seen.callback());
  ASSERT_TRUE(watch.ok());
  ::kill(children.pids[0], SIGSTOP);
  EXPECT_FALSE(test::wait_until([&] { return seen.calls != 0; }, 50ms));
  ::kill(children.pids[0], SIGCONT);
}

TEST(PeerWatch, DoesNotWatchItself) {
  Children children(1);
  Seen seen;
  // The child stands for this rank's own process.
  auto watch = PeerWatch::start(std::vector<pid_t>{children.pids[0], ::getpid()}, 0, seen.callback());
  ASSERT_TRUE(watch.ok());
  children.kill_and_reap(0);
  EXPECT_FALSE(test::wait_until([&] { return seen.calls != 0; }, 50ms));
}

TEST(PeerWatch, APeerThatIsGoneAlreadyIsNamed) {
  Children children(1);
  const pid_t gone = children.pids[0];
  children.kill_and_reap(0);
  Seen seen;
  const auto watch = PeerWatch::start(std::vector<pid_t>{::getpid(), gone}, 0, seen.callback());
  ASSERT_FALSE(watch.ok());
  EXPECT_EQ(watch.status().code(), Code::remote_error);
  EXPECT_NE(watch.status().text().find("rank 1"), std::string::npos);
  EXPECT_EQ(seen.calls, 0);
}

TEST(PeerWatch, LeavesNothingBehind) {
  Children children(2);
  const std::vector<pid_t> all = {::getpid(), children.pids[0], children.pids[1]};
  const std::ptrdiff_t before = open_files();
  for (int i = 0; i < 50; ++i) {
    Seen seen;
    auto watch = PeerWatch::start(all, 0, seen.callback());
    ASSERT_TRUE(watch.ok());
    EXPECT_GT(open_files(), before);
  }
  EXPECT_EQ(open_files(), before);
}

}  // namespace
}  // namespace nearlight::runtime
