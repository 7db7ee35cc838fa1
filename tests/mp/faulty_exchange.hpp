// An exchange that is slow or goes wrong at a chosen step, to find out what the code above it makes of that.
#pragma once

#include <chrono>
#include <thread>

#include "base/exchange.hpp"

namespace nearlight::test {

class FaultyExchange final : public Exchange {
 public:
  enum class Fault {
    none,
    late,         // comes to the step late
    leaves_late,  // is held up right after the step
    wrong_call,   // makes another call than the others, whose exchange and own fail by it
  };

  FaultyExchange(Exchange& inner, Fault fault, int step, std::chrono::milliseconds delay = {})
      : inner_(inner), fault_(fault), step_(step), delay_(delay) {}

  int rank() const override { return inner_.rank(); }
  int nranks() const override { return inner_.nranks(); }
  bool same_process() const override { return inner_.same_process(); }
  std::vector<pid_t> processes() const override { return inner_.processes(); }
  int steps() const { return steps_; }

  Status all_gather(std::span<const std::byte> mine, std::span<std::byte> all, Deadline deadline) override {
    const bool here = enter();
    if (here && fault_ == Fault::wrong_call) return inner_.barrier(deadline);
    Status status = inner_.all_gather(mine, all, deadline);
    leave(here);
    return status;
  }
  Status barrier(Deadline deadline) override {
    const bool here = enter();
    if (here && fault_ == Fault::wrong_call) return inner_.all_gather({}, {}, deadline);
    Status status = inner_.barrier(deadline);
    leave(here);
    return status;
  }
  Result<UniqueFd> share_fd(int fd, int root, Deadline deadline) override {
    const bool here = enter();
    if (here && fault_ == Fault::wrong_call) {
      NL_TRY(inner_.barrier(deadline));
      return failure(Code::internal_error, "a barrier met a share_fd");
    }
    auto shared = inner_.share_fd(fd, root, deadline);
    leave(here);
    return shared;
  }

 private:
  bool enter() {
    const bool here = steps_++ == step_;
    if (here && fault_ == Fault::late) std::this_thread::sleep_for(delay_);
    return here;
  }
  void leave(bool here) const {
    if (here && fault_ == Fault::leaves_late) std::this_thread::sleep_for(delay_);
  }

  Exchange& inner_;
  Fault fault_;
  int step_;
  std::chrono::milliseconds delay_;
  int steps_ = 0;
};

}  // namespace nearlight::test
