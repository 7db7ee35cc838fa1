#include "tests/support/stuck.hpp"

#include <dirent.h>
#include <execinfo.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

namespace nearlight::test {

namespace {

using Clock = std::chrono::steady_clock;
constexpr int kSignal = SIGUSR2;
constexpr int kFrames = 48;

std::atomic<int> stacks_written{0};

// Only what may be called from a signal handler; backtrace() was called once before, so that it loads
// nothing.
void write_own_stack(int) {
  char head[64];
  const int length = std::snprintf(head, sizeof head, "-- thread %ld\n", ::syscall(SYS_gettid));
  static_cast<void>(!::write(STDERR_FILENO, head, static_cast<std::size_t>(length)));
  void* frames[kFrames];
  ::backtrace_symbols_fd(frames, ::backtrace(frames, kFrames), STDERR_FILENO);
  stacks_written.fetch_add(1);
}

std::vector<pid_t> threads() {
  std::vector<pid_t> ids;
  if (DIR* const folder = ::opendir("/proc/self/task")) {
    while (const dirent* const entry = ::readdir(folder))
      if (const int id = std::atoi(entry->d_name); id > 0) ids.push_back(id);
    ::closedir(folder);
  }
  return ids;
}

// One after the other, so that they do not lie across each other. A thread in the kernel may never answer.
void write_all_stacks() {
  const auto own = static_cast<pid_t>(::syscall(SYS_gettid));
  for (const pid_t id : threads()) {
    const int before = stacks_written.load();
    if (id == own || ::syscall(SYS_tgkill, ::getpid(), id, kSignal) != 0) continue;
    for (int i = 0; i < 100 && stacks_written.load() == before; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

class Listener : public testing::EmptyTestEventListener {
 public:
  explicit Listener(std::chrono::milliseconds limit) : watch_(*new StuckWatch(limit)) {}
  void OnTestStart(const testing::TestInfo& test) override {
    watch_.begin(std::string(test.test_suite_name()) + "." + test.name());
  }
  void OnTestEnd(const testing::TestInfo&) override { watch_.end(); }

 private:
  StuckWatch& watch_;
};

}  // namespace

StuckWatch::StuckWatch(std::chrono::milliseconds limit) : limit_(limit) {
  void* frame[1];
  static_cast<void>(::backtrace(frame, 1));
  struct sigaction action {};
  action.sa_handler = write_own_stack;
  action.sa_flags = SA_RESTART;
  static_cast<void>(::sigaction(kSignal, &action, nullptr));
  std::thread([this] { look(); }).detach();
}

// The name is written before the time that says that there is one.
void StuckWatch::begin(std::string name) {
  name_ = std::move(name);
  began_ns_.store(Clock::now().time_since_epoch().count(), std::memory_order_release);
}

void StuckWatch::look() const {
  for (;; std::this_thread::sleep_for(std::chrono::milliseconds(50))) {
    const std::int64_t began_ns = began_ns_.load(std::memory_order_acquire);
    const auto now = Clock::now().time_since_epoch();
    if (began_ns == 0 || now - Clock::duration(began_ns) < limit_) continue;
    std::fprintf(stderr, "[  FAILED  ] %s has not ended in %lld ms; where its threads are:\n", name_.c_str(),
                 static_cast<long long>(limit_.count()));
    write_all_stacks();
    std::fflush(nullptr);
    ::_exit(kStuckExit);
  }
}

void tell_where_tests_are_stuck(std::chrono::milliseconds limit) {
  testing::UnitTest::GetInstance()->listeners().Append(std::make_unique<Listener>(limit).release());
}

}  // namespace nearlight::test
