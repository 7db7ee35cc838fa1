// What this program asks the system for: allocations are counted, allocations and threads made to fail.
#pragma once

#include <cstdint>

namespace nearlight::test {

// Allocations of the calling thread since it began.
std::uint64_t allocations_of_this_thread();

// While this object lives, the n-th allocation of the whole process from now on (0: the next one) fails.
class FailingAllocation {
 public:
  explicit FailingAllocation(std::int64_t n);
  FailingAllocation(const FailingAllocation&) = delete;
  ~FailingAllocation();
  // Whether there was one to fail.
  bool happened() const;
};

// The same for threads: starting the n-th one fails.
class FailingThread {
 public:
  explicit FailingThread(int n);
  FailingThread(const FailingThread&) = delete;
  ~FailingThread();
};

}  // namespace nearlight::test
