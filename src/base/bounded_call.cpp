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

class Begun {
 public:
  Begun(std::function<Status(LeftAlone&)> call, Deadline deadline, Status late)
      : progress_(std::make_shared<Progress>()), deadline_(deadline), late_(std::move(late)) {
    try {
      worker_ =
          std::thread([call = std::move(call), progress = progress_] { progress->finish(call(*progress)); });
    } catch (const std::system_error& error) {
      progress_->finish(system_failure("starting a thread", error.code().value()));
    }
  }
  Begun(const Begun&) = delete;
  ~Begun() {
    if (!worker_.joinable()) return;
    static_cast<void>(progress_->wait(Deadline::after_ms(0)));  // tells it that it is left alone
    worker_.detach();
  }

  Status wait() {
    if (!progress_->wait(deadline_)) return late_;
    if (worker_.joinable()) worker_.join();
    return progress_->status();
  }

 private:
  const std::shared_ptr<Progress> progress_;
  const Deadline deadline_;
  const Status late_;
  std::thread worker_;
};

}  // namespace

Status bounded_call(std::function<Status(LeftAlone&)> call, Deadline deadline, Status late) {
  return Begun(std::move(call), deadline, std::move(late)).wait();
}

std::function<Status()> begin_bounded_call(std::function<Status(LeftAlone&)> call, Deadline deadline,
                                           Status late) {
  const auto begun = std::make_shared<Begun>(std::move(call), deadline, std::move(late));
  return [begun] { return begun->wait(); };
}

}  // namespace nearlight
