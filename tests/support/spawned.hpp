// Programs that a test starts on their own, each with an environment and an output of its own.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <string>
#include <vector>

#include "base/unique_fd.hpp"

namespace nearlight::test {

// The path of this test's own program.
std::string own_program();

// `words`: program (looked for on PATH) and arguments. `environment`: "NAME=value" in addition to this
// process's, or "NAME" to leave it out. Whatever still runs is killed on destruction.
class Spawned {
 public:
  Spawned(const std::vector<std::string>& words, const std::vector<std::string>& environment);
  Spawned(Spawned&& other) noexcept;
  Spawned& operator=(Spawned&&) = delete;
  ~Spawned();

  // -1: it could not be started; output() says why.
  pid_t pid() const { return pid_; }
  void kill(int signal) const;
  // Its exit code, or minus the signal that ended it. Killed when it has not ended within `limit`.
  int wait(std::chrono::milliseconds limit = std::chrono::seconds(120));
  // What it has written to stdout and stderr so far.
  std::string output() const;
  // Waits until `text` stands in the output; false when it ends, or takes a minute, before.
  bool wait_for_output(const std::string& text) const;

 private:
  pid_t pid_ = -1;
  bool running_ = false;
  int end_ = -1;
  UniqueFd output_;
};

}  // namespace nearlight::test
