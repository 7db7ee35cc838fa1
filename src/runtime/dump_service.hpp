// Lets another process of the same user ask a communicator for its state: `nearlight dump PID`.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/deadline.hpp"
#include "base/status.hpp"

namespace nearlight::runtime {

// A thread that listens on an abstract Unix socket and answers each process of this user (or root) with
// `text()`; others get nothing. It touches nothing that a call uses. Ends with this object.
class DumpService {
 public:
  // `every_100ms`: called by the same thread, also when nobody asks; may be empty. `answers`: false: nobody
  // can ask, there is that call alone.
  static Result<std::unique_ptr<DumpService>> start(std::function<std::string()> text,
                                                    std::function<void()> every_100ms = {},
                                                    bool answers = true);
  virtual ~DumpService() = default;
};

// What the communicators of process `pid` answer, one text each. Code::invalid_argument: no such process;
// Code::invalid_usage: it has none that answers; Code::timeout: it did not in time (it may be stopped).
Result<std::vector<std::string>> ask_for_dumps(pid_t pid, Deadline deadline);

}  // namespace nearlight::runtime
