#include "tests/support/spawned.hpp"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <string_view>
#include <utility>

#include "tests/support/ranks.hpp"

extern char** environ;  // NOLINT: POSIX gives it no header

namespace nearlight::test {

namespace {

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> all;
  for (std::string& text : texts) all.push_back(text.data());
  all.push_back(nullptr);
  return all;
}

std::string_view name_in(std::string_view entry) { return entry.substr(0, entry.find('=')); }

}  // namespace

std::string own_program() {
  char path[4096];
  const ssize_t length = ::readlink("/proc/self/exe", path, sizeof path);
  return std::string(path, length > 0 ? static_cast<std::size_t>(length) : 0);
}

Spawned::Spawned(const std::vector<std::string>& words, const std::vector<std::string>& environment)
    : output_(::memfd_create("output", MFD_CLOEXEC)) {
  std::vector<std::string> arguments = words, variables;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const auto replaced = [&](const std::string& own) { return name_in(own) == name_in(*entry); };
    if (std::none_of(environment.begin(), environment.end(), replaced)) variables.emplace_back(*entry);
  }
  for (const std::string& own : environment) {
    if (own.find('=') != std::string::npos) variables.push_back(own);
  }
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_adddup2(&actions, output_.get(), 1);
  ::posix_spawn_file_actions_adddup2(&actions, output_.get(), 2);
  const int error = ::posix_spawnp(&pid_, words[0].c_str(), &actions, nullptr, pointers(arguments).data(),
                                   pointers(variables).data());
  ::posix_spawn_file_actions_destroy(&actions);
  running_ = error == 0;
  if (running_) return;
  pid_ = -1;
  const std::string why = words[0] + ": " + std::strerror(error);
  static_cast<void>(!::write(output_.get(), why.data(), why.size()));
}

Spawned::Spawned(Spawned&& other) noexcept
    : pid_(other.pid_),
      running_(std::exchange(other.running_, false)),
      end_(other.end_),
      output_(std::move(other.output_)) {}

Spawned::~Spawned() {
  if (!running_) return;
  kill(SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}

void Spawned::kill(int signal) const {
  if (running_) ::kill(pid_, signal);
}

int Spawned::wait(std::chrono::milliseconds limit) {
  if (!running_) return end_;
  int status = 0;
  if (!wait_until([&] { return ::waitpid(pid_, &status, WNOHANG) == pid_; }, limit)) {
    kill(SIGKILL);
    ::waitpid(pid_, &status, 0);
  }
  running_ = false;
  end_ = WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
  return end_;
}

std::string Spawned::output() const {
  std::string text(static_cast<std::size_t>(::lseek(output_.get(), 0, SEEK_CUR)), '\0');
  text.resize(
      static_cast<std::size_t>(std::max<ssize_t>(0, ::pread(output_.get(), text.data(), text.size(), 0))));
  return text;
}

bool Spawned::wait_for_output(const std::string& text) const {
  bool found = false;
  wait_until(
      [&] {
        siginfo_t info{};
        ::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT);
        found = output().find(text) != std::string::npos;
        return found || info.si_pid == pid_;
      },
      std::chrono::seconds(60));
  return found;
}

}  // namespace nearlight::test
