#include "cli/bench/failure_watch.hpp"

#include <utility>

namespace nearlight::bench {

namespace {
// Seldom enough that waking up does not show in the samples.
constexpr std::chrono::milliseconds kNap{500};
}  // namespace

FailureWatch::FailureWatch(const Meeting& meeting, std::function<void()> on_failure) : meeting_(meeting) {
  thread_ = std::thread([this, on_failure = std::move(on_failure)] {
    while (!stop_.load(std::memory_order_acquire)) {
      if (meeting_.wait_for_failure(kNap)) {
        on_failure();
        return;
      }
    }
  });
}

FailureWatch::~FailureWatch() {
  stop_.store(true, std::memory_order_release);
  meeting_.wake_sleepers();  // a wake that comes too early costs a nap, no more
  thread_.join();
}

}  // namespace nearlight::bench
