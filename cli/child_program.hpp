// Commands that run another program.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/status.hpp"

namespace nearlight::cli {

// A folder for what the program and its children write, which goes with its object.
class ChildFolder {
 public:
  static Result<ChildFolder> make();
  explicit ChildFolder(std::string path) : path_(std::move(path)) {}
  ChildFolder(ChildFolder&& other) noexcept : path_(std::exchange(other.path_, "")) {}
  ~ChildFolder();
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

using Environment = std::vector<std::pair<std::string, std::string>>;

// Runs the program with these variables and waits for it: its exit status as a shell has it (127: it cannot
// be run; 128 + n: ended by signal n). SIGINT, SIGQUIT, SIGTERM and SIGHUP that somebody sends to this
// process go to the program; what the terminal sends to both, as on Ctrl-C, is the program's already.
Result<int> run_child(const std::vector<std::string>& command, const Environment& environment);

// Turns this process into the program. Returns only where it cannot be run: 127.
int become_program(const std::vector<std::string>& command, const Environment& environment);

}  // namespace nearlight::cli
