#include "runtime/early_launch.hpp"

#include <map>
#include <mutex>

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

EarlyLaunch::EarlyLaunch(EarlyLaunch&& other) noexcept : device_(other.device_.exchange(-1)) {}

EarlyLaunch& EarlyLaunch::operator=(EarlyLaunch&& other) noexcept {
  if (this == &other) return *this;
  leave();
  device_ = other.device_.exchange(-1);
  return *this;
}

void EarlyLaunch::leave() {
  const int device = device_.exchange(-1);
  if (device < 0) return;
  const std::lock_guard lock(counts().mutex);
  --counts().of_device[device];
}

}  // namespace nearlight::runtime
