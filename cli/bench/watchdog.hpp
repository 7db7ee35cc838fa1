// A limit for what has none: waits that nothing inside the process can end.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>

namespace nearlight::bench {

// Ends the process, with a text on stderr, once something that it watches has lasted for longer than `limit`,
// or is still under way after abandon(). What is watched pays two stores.
class Watchdog {
 public:
  explicit Watchdog(std::chrono::milliseconds limit);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  // One thread's, in turns. Odd: under way.
  void begin() { count_.store(count_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed); }
  void end() { begin(); }
  // Any thread.
  void abandon() { abandoned_.store(true, std::memory_order_relaxed); }

 private:
  void watch(std::chrono::milliseconds limit);

  std::atomic<std::uint64_t> count_{0};
  std::atomic<bool> abandoned_{false}, stop_{false};
  std::thread thread_;
};

}  // namespace nearlight::bench
