#include "cli/child_program.hpp"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

namespace nearlight::cli {

namespace {

namespace fs = std::filesystem;

// Leaves the keyboard's signals to the program.
class KeyboardSignals {
 public:
  KeyboardSignals() {
    struct sigaction ignore {};
    ignore.sa_handler = SIG_IGN;
    static_cast<void>(::sigaction(SIGINT, &ignore, &interrupt_));
    static_cast<void>(::sigaction(SIGQUIT, &ignore, &quit_));
  }
  KeyboardSignals(const KeyboardSignals&) = delete;
  ~KeyboardSignals() { restore(); }
  void restore() const {
    static_cast<void>(::sigaction(SIGINT, &interrupt_, nullptr));
    static_cast<void>(::sigaction(SIGQUIT, &quit_, nullptr));
  }

 private:
  struct sigaction interrupt_ {
  }, quit_{};
};

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
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  const KeyboardSignals signals;
  const pid_t child = ::fork();
  if (child < 0) return system_failure("fork", errno);
  if (child == 0) {
    signals.restore();
    for (const auto& [name, value] : environment) ::setenv(name.c_str(), value.c_str(), 1);
    ::execvp(arguments[0], arguments.data());
    std::fprintf(stderr, "nearlight: %s: cannot be run\n", arguments[0]);
    ::_exit(127);
  }
  int status = 0;
  while (::waitpid(child, &status, 0) < 0) {
    if (errno != EINTR) return system_failure("waitpid", errno);
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace nearlight::cli
