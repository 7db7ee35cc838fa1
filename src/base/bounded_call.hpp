// A call that has no limit of its own, with one.
#pragma once

#include <chrono>
#include <functional>

#include "base/deadline.hpp"
#include "base/status.hpp"

namespace nearlight {

// What the call may ask while it runs.
class LeftAlone {
 public:
  virtual ~LeftAlone() = default;
  // Waits for `time`, or until nobody waits for the call any more: true then.
  virtual bool after(std::chrono::milliseconds time) = 0;
};

// Runs `call` on a thread of its own until the deadline, and returns what it returned. A call that has not
// ended by then is left behind with its thread, which ends when the call does, and the outcome is `late`: so
// what `call` uses must be its own. Code::system_error: there is no thread to be had.
Status bounded_call(std::function<Status(LeftAlone&)> call, Deadline deadline, Status late);

// The same in two halves: it begins at once, and the result waits for it, to be called once. A result that
// goes without having been called leaves the call behind.
std::function<Status()> begin_bounded_call(std::function<Status(LeftAlone&)> call, Deadline deadline,
                                           Status late);

}  // namespace nearlight
