// `nearlight run -- CMD`: a program under the drop-in for NCCL.
#pragma once

#include <string>
#include <vector>

namespace nearlight::cli {

struct RunOptions {
  bool stats = false;
  bool audit = true;
  std::string nccl;                  // path; "": the one that the program has
  std::vector<std::string> command;  // program and arguments
};

// Returns the program's exit status.
int run_command(const RunOptions& options);

}  // namespace nearlight::cli
