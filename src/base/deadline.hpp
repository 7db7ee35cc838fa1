// A point in time after which a host-side wait gives up. Every wait of the host takes one.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

namespace nearlight {

class Deadline {
 public:
  using Clock = std::chrono::steady_clock;

  static Deadline after(std::chrono::nanoseconds time) { return Deadline(Clock::now() + time); }
  static Deadline after_ms(std::int64_t ms) { return after(std::chrono::milliseconds(ms)); }

  bool passed() const { return Clock::now() >= at_; }
  std::chrono::nanoseconds left() const {
    return std::max(std::chrono::nanoseconds(0),
                    std::chrono::duration_cast<std::chrono::nanoseconds>(at_ - Clock::now()));
  }
  // For poll(2): at least 1 while time is left, 0 after.
  int left_ms() const {
    const auto ms = std::chrono::ceil<std::chrono::milliseconds>(left()).count();
    return static_cast<int>(std::min<std::int64_t>(ms, 1 << 30));
  }
  // For options, where 0 is no limit: at least 1.
  std::chrono::milliseconds left_or_1_ms() const {
    return std::max(std::chrono::duration_cast<std::chrono::milliseconds>(left()),
                    std::chrono::milliseconds(1));
  }

 private:
  explicit Deadline(Clock::time_point at) : at_(at) {}
  Clock::time_point at_;
};

}  // namespace nearlight
