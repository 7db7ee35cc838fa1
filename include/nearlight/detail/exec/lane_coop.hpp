// A group of several threads on the CPU, for tests of what happens inside a group: the product runs one
// thread a rank.
#pragma once

#include <barrier>

namespace nearlight::exec {

// One thread's place in the group; all its threads share the barrier, made for `lanes` threads.
struct LaneCoop {
  int lane;
  int lanes;
  std::barrier<>* barrier;

  int thread_rank() const { return lane; }
  int size() const { return lanes; }
  void sync() { barrier->arrive_and_wait(); }
};

}  // namespace nearlight::exec
