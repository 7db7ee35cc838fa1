// `nearlight dump PID`: the state of the communicators of a running process.
#pragma once

namespace nearlight::cli {

struct DumpOptions {
  int pid = 0;
  int timeout_ms = 10'000;
};

// Returns the exit status.
int dump_command(const DumpOptions& options);

}  // namespace nearlight::cli
