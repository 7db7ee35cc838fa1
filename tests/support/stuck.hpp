// A test that does not end tells where its threads are, and ends the program.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>

namespace nearlight::test {

inline constexpr int kStuckExit = 86;

// Lives as long as the program, one at most. What began and has not ended after `limit` gets the stacks of
// all threads written to stderr, and the program ends with kStuckExit.
class StuckWatch {
 public:
  explicit StuckWatch(std::chrono::milliseconds limit);
  StuckWatch(const StuckWatch&) = delete;

  void begin(std::string name);
  void end() { began_ns_.store(0); }

 private:
  [[noreturn]] void look() const;

  const std::chrono::milliseconds limit_;
  std::string name_;
  std::atomic<std::int64_t> began_ns_{0};  // 0: nothing is on
};

// For GoogleTest programs, before RUN_ALL_TESTS(): such a watch over each test. On a machine that is there
// for minutes only, the stacks are worth more than the remaining wait.
void tell_where_tests_are_stuck(std::chrono::milliseconds limit);

}  // namespace nearlight::test
