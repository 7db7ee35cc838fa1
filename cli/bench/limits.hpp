// How long a benchmark's own waits last. Each is longer than what it waits for, so that the failure that is
// told is the innermost one: an operation's, which names the rank that did not come.
#pragma once

#include <chrono>

namespace nearlight::bench {

struct Limits {
  std::chrono::milliseconds hold;     // a stream is held back until all ranks have enqueued
  std::chrono::milliseconds work;     // what was enqueued ends: the hold, then an operation that times out
  std::chrono::milliseconds meeting;  // all ranks come: one of them may wait for its work
};

// `timeout`: of one wait inside an operation. The rest is for what takes time without waiting: a chain of
// many large operations, a rank that sets itself up.
constexpr Limits limits_of(std::chrono::milliseconds timeout) {
  Limits limits{};
  limits.hold = timeout + std::chrono::seconds(40);
  limits.work = limits.hold + timeout + std::chrono::seconds(70);
  limits.meeting = limits.work + std::chrono::seconds(30);
  return limits;
}

}  // namespace nearlight::bench
