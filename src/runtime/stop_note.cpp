#include "runtime/stop_note.hpp"

#include <utility>

namespace nearlight::runtime {

std::uint64_t StopNote::add(Reason reason, const std::function<void()>& act) {
  const std::lock_guard lock(mutex_);
  last_ = std::move(reason);
  if (first_.status.ok()) first_ = last_;
  if (last_.of_all && first_of_all_.status.ok()) first_of_all_ = last_;
  act();
  return ++count_;
}

StopNote::Reason StopNote::first() const {
  const std::lock_guard lock(mutex_);
  return first_;
}

StopNote::Reason StopNote::first_of_all() const {
  const std::lock_guard lock(mutex_);
  return first_of_all_;
}

void StopNote::look(const std::function<void(const Reason&)>& read) const {
  const std::lock_guard lock(mutex_);
  read(first_);
}

std::uint64_t StopNote::count() const {
  const std::lock_guard lock(mutex_);
  return count_;
}

Status StopNote::forget(std::uint64_t count, const std::function<void()>& clear) {
  const std::lock_guard lock(mutex_);
  if (count_ != count) return last_.status;
  first_ = first_of_all_ = {};
  clear();
  return {};
}

}  // namespace nearlight::runtime
