// Ends the waits of a rank whose peer has failed: it may sit in an operation that the peer will never join.
#pragma once

#include <atomic>
#include <functional>
#include <thread>

#include "cli/bench/meeting.hpp"

namespace nearlight::bench {

class FailureWatch {
 public:
  // Calls `on_failure` once, from a thread of its own, when any rank has failed.
  FailureWatch(const Meeting& meeting, std::function<void()> on_failure);
  FailureWatch(const FailureWatch&) = delete;
  ~FailureWatch();

 private:
  const Meeting& meeting_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace nearlight::bench
