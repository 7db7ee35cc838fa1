#include "runtime/early_launch.hpp"

#include <map>
#include <mutex>
#include <utility>

namespace nearlight::runtime {

namespace {

struct Counts {
  std::mutex mutex;
  std::map<int, int> of_device;  // live communicators that are early
};

// Never destroyed: communicators may end with the process.
Counts& counts() {
  static Counts* const all = new Counts;
  return *all;
}

}  // namespace

EarlyLaunch::EarlyLaunch(std::optional<bool> wish, int device, bool alone) {
  if (!wish.value_or(alone)) return;
  const std::lock_guard lock(counts().mutex);
  int& count = counts().of_device[device];
  if (!wish && count > 0) return;
  ++count;
  device_ = device;
}

EarlyLaunch::EarlyLaunch(EarlyLaunch&& other) noexcept : device_(std::exchange(other.device_, -1)) {}

EarlyLaunch& EarlyLaunch::operator=(EarlyLaunch&& other) noexcept {
  if (this == &other) return *this;
  leave();
  device_ = std::exchange(other.device_, -1);
  return *this;
}

void EarlyLaunch::leave() {
  if (device_ < 0) return;
  const std::lock_guard lock(counts().mutex);
  --counts().of_device[std::exchange(device_, -1)];
}

}  // namespace nearlight::runtime
