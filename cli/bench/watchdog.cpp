#include "cli/bench/watchdog.hpp"

#include <cstdio>
#include <cstdlib>

#include "cli/exit_code.hpp"

namespace nearlight::bench {

namespace {
// Seldom enough that waking up does not show in the samples.
constexpr std::chrono::milliseconds kNap{100};
}  // namespace

Watchdog::Watchdog(std::chrono::milliseconds limit) : thread_([this, limit] { watch(limit); }) {}

Watchdog::~Watchdog() {
  stop_.store(true, std::memory_order_relaxed);
  thread_.join();
}

void Watchdog::watch(std::chrono::milliseconds limit) {
  using Clock = std::chrono::steady_clock;
  std::uint64_t last = 0;
  Clock::time_point since = Clock::now();
  while (!stop_.load(std::memory_order_relaxed)) {
    std::this_thread::sleep_for(kNap);
    const std::uint64_t count = count_.load(std::memory_order_relaxed);
    const bool under_way = count % 2 == 1;
    if (!under_way || count != last) {
      last = count;
      since = Clock::now();
      continue;
    }
    const bool abandoned = abandoned_.load(std::memory_order_relaxed);
    if (!abandoned && Clock::now() - since < limit) continue;
    std::fprintf(
        stderr, "nearlight: %s, and a wait without a limit (--paired deadline) ends with its process alone\n",
        abandoned ? "another rank has failed" : "a rank did not come in time");
    std::_Exit(cli::kExitWrong);
  }
}

}  // namespace nearlight::bench
