// Notices at once when the process of a peer ends: a dead rank need not run into the time limit.
#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <span>

#include "base/status.hpp"

namespace nearlight::runtime {

// A thread that waits on the pidfds of the other ranks' processes and calls back once, with the first that
// ended.
class PeerWatch {
 public:
  // processes[p]: the process of rank p. on_death(rank, pid) runs on the watching thread.
  static Result<std::unique_ptr<PeerWatch>> start(std::span<const pid_t> processes, int own_rank,
                                                  std::function<void(int, pid_t)> on_death);
  virtual ~PeerWatch() = default;
};

}  // namespace nearlight::runtime
