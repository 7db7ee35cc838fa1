#include "base/bounded_call.hpp"

#include <algorithm>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

namespace nearlight {

namespace {

class Progress final : public LeftAlone {
 public:
  bool after(std::chrono::milliseconds time) override {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, time, [this] { return left_alone_; });
  }

  void finish(Status status) {
    const std::lock_guard lock(mutex_);
    status_ = std::move(status);
    done_ = true;
    changed_.notify_all();
  }

  // False: the deadline has passed, and the call is on its own now.
  bool wait(Deadline deadline) {
    std::unique_lock lock(mutex_);
    while (!done_ && !deadline.passed()) {
      // Clocks of the system may not take a deadline of centuries.
      changed_.wait_for(lock, std::min<std::chrono::nanoseconds>(deadline.left(), std::chrono::hours(1)));
    }
    left_alone_ = !done_;
    changed_.notify_all();
    return done_;
  }

  Status status() {
    const std::lock_guard lock(mutex_);
    return status_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool done_ = false;
  bool left_alone_ = false;
  Status status_;
};

}  // namespace

Status bounded_call(std::function<Status(LeftAlone&)> call, Deadline deadline, Status late) {
  const auto progress = std::make_shared<Progress>();
  std::thread worker;
  try {
    worker = std::thread([call = std::move(call), progress] { progress->finish(call(*progress)); });
  } catch (const std::system_error& error) {
    return system_failure("starting a thread", error.code().value());
  }
  if (!progress->wait(deadline)) {
    worker.detach();
    return late;
  }
  worker.join();
  return progress->status();
}

}  // namespace nearlight
