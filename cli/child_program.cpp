#include "cli/child_program.hpp"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

namespace nearlight::cli {

namespace {

namespace fs = std::filesystem;

// The program's process; 0: there is none now.
std::atomic<pid_t> running{0};
static_assert(std::atomic<pid_t>::is_always_lock_free, "a signal handler reads it");

// What somebody sends to this process is the program's. What the kernel sends, as on Ctrl-C or when the
// terminal goes, goes to all of the terminal's processes, and so to the program without us.
void pass_on(int signal, siginfo_t* from, void*) {
  const pid_t child = running.load(std::memory_order_relaxed);
  const int kept = errno;
  if (child > 0 && from->si_code <= 0) static_cast<void>(::kill(child, signal));
  errno = kept;
}

// While it lives, signals that end a program are passed on. Those that are ignored stay so, as under nohup.
class PassedOnSignals {
 public:
  PassedOnSignals() {
    struct sigaction action {};
    action.sa_sigaction = pass_on;
    action.sa_flags = SA_SIGINFO | SA_RESTART;
    sigfillset(&action.sa_mask);
    for (std::size_t i = 0; i < kCount; ++i) {
      static_cast<void>(::sigaction(kSignals[i], nullptr, &before_[i]));
      if (before_[i].sa_handler != SIG_IGN) static_cast<void>(::sigaction(kSignals[i], &action, nullptr));
    }
  }
  PassedOnSignals(const PassedOnSignals&) = delete;
  ~PassedOnSignals() { restore(); }
  void restore() const {
    for (std::size_t i = 0; i < kCount; ++i)
      static_cast<void>(::sigaction(kSignals[i], &before_[i], nullptr));
  }

 private:
  static constexpr int kSignals[] = {SIGINT, SIGQUIT, SIGTERM, SIGHUP};
  static constexpr std::size_t kCount = sizeof kSignals / sizeof kSignals[0];
  struct sigaction before_[kCount] = {};
};

// Holds all signals back, so that none comes between fork() and the note of the program's number.
class HeldSignals {
 public:
  HeldSignals() {
    sigset_t all;
    sigfillset(&all);
    static_cast<void>(::pthread_sigmask(SIG_SETMASK, &all, &before_));
  }
  HeldSignals(const HeldSignals&) = delete;
  ~HeldSignals() { restore(); }
  void restore() const { static_cast<void>(::pthread_sigmask(SIG_SETMASK, &before_, nullptr)); }

 private:
  sigset_t before_{};
};

std::vector<char*> arguments_of(std::vector<std::string>& words) {
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  return arguments;
}

// Becomes the program; returns where it cannot.
int become(const std::vector<char*>& arguments, const Environment& environment) {
  for (const auto& [name, value] : environment) ::setenv(name.c_str(), value.c_str(), 1);
  ::execvp(arguments[0], arguments.data());
  std::fprintf(stderr, "nearlight: %s: cannot be run\n", arguments[0]);
  return 127;
}

}  // namespace

Result<ChildFolder> ChildFolder::make() {
  std::error_code error;
  std::string path = (fs::temp_directory_path(error) / "nearlight-XXXXXX").string();
  if (error || ::mkdtemp(path.data()) == nullptr) return system_failure("mkdtemp " + path, errno);
  return ChildFolder(path);
}

ChildFolder::~ChildFolder() {
  std::error_code ignored;  // it lies where such files are cleaned up
  if (!path_.empty()) fs::remove_all(path_, ignored);
}

Result<int> run_child(const std::vector<std::string>& command, const Environment& environment) {
  std::vector<std::string> words = command;
  const std::vector<char*> arguments = arguments_of(words);
  const PassedOnSignals signals;
  pid_t child = 0;
  {
    const HeldSignals held;
    child = ::fork();
    if (child < 0) return system_failure("fork", errno);
    if (child == 0) {
      signals.restore();
      held.restore();
      ::_exit(become(arguments, environment));
    }
    running.store(child, std::memory_order_relaxed);
  }
  // Its number is its own until it is waited for below: no signal goes to another one.
  siginfo_t ended{};
  while (::waitid(P_PID, static_cast<id_t>(child), &ended, WEXITED | WNOWAIT) < 0) {
    if (errno != EINTR) return system_failure("waitid", errno);
  }
  running.store(0, std::memory_order_relaxed);
  int status = 0;
  while (::waitpid(child, &status, 0) < 0) {
    if (errno != EINTR) return system_failure("waitpid", errno);
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int become_program(const std::vector<std::string>& command, const Environment& environment) {
  std::vector<std::string> words = command;
  return become(arguments_of(words), environment);
}

}  // namespace nearlight::cli
