// What the tests of meetings share: several ranks that come at once, and what came of it.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "bootstrap/process_group.hpp"
#include "tests/support/ranks.hpp"

namespace nearlight::bootstrap {

using Joined = Result<std::unique_ptr<Exchange>>;

// Far above what a meeting takes.
inline Deadline patience() { return Deadline::after(std::chrono::seconds(60)); }

// One that comes, after `delay`, and waits as long as `limit`.
struct Comer {
  GroupPlace place;
  std::chrono::milliseconds delay{0};
  std::chrono::milliseconds limit{60'000};
};

// All of them at once, a thread each; [i] is what became of comer i.
inline std::vector<Joined> come(const std::vector<Comer>& comers) {
  std::vector<Joined> all;
  for (std::size_t i = 0; i < comers.size(); ++i)
    all.emplace_back(failure(Code::internal_error, "never came"));
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < comers.size(); ++i) {
    threads.emplace_back([&, i] {
      std::this_thread::sleep_for(comers[i].delay);
      all[i] = join_process_group(comers[i].place, Deadline::after(comers[i].limit));
    });
  }
  for (std::thread& thread : threads) thread.join();
  return all;
}

inline void expect_failed(const Joined& one, Code code, const std::vector<std::string>& words) {
  ASSERT_FALSE(one.ok());
  EXPECT_EQ(one.status().code(), code) << one.status().to_string();
  for (const std::string& word : words) EXPECT_THAT(one.status().text(), testing::HasSubstr(word));
}

// A child that runs `body` and leaves by _exit with what it returns.
class Child {
 public:
  explicit Child(const std::function<int()>& body) : pid_(::fork()) {
    if (pid_ == 0) {
      ::alarm(120);  // should the test be killed
      ::_exit(body());
    }
  }
  Child(const Child&) = delete;
  ~Child() { end(); }
  pid_t pid() const { return pid_; }
  void kill() const { EXPECT_EQ(::kill(pid_, SIGKILL), 0); }
  // The exit code, or minus the signal.
  int end() {
    if (pid_ < 0) return 0;
    int status = 0;
    EXPECT_EQ(::waitpid(pid_, &status, 0), pid_);
    pid_ = -1;
    return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
  }

 private:
  pid_t pid_;
};

inline std::string process(const Child& child) { return "(process " + std::to_string(child.pid()) + ")"; }

inline int open_descriptors() {
  int count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) ++count;
  return count;
}

}  // namespace nearlight::bootstrap
