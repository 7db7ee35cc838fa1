// What the program's exit status says.
#pragma once

#include "base/status.hpp"

namespace nearlight::cli {

enum ExitCode : int {
  kExitOk = 0,
  kExitWrong = 1,   // a result was wrong, or an operation failed while it ran
  kExitUsage = 2,   // the command line was not understood or contradicts itself
  kExitUnfit = 3,   // this machine, driver or library cannot do what was asked
  kExitSlower = 4,  // a comparison: something became slower
};

inline int exit_code_of(const Status& status) {
  switch (status.code()) {
    case Code::ok:
      return kExitOk;
    case Code::invalid_argument:
    case Code::invalid_usage:
      return kExitUsage;
    case Code::unsupported:
      return kExitUnfit;
    default:
      return kExitWrong;
  }
}

}  // namespace nearlight::cli
