// Heaps of two ranks that are both held by this thread.
#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "base/deadline.hpp"
#include "base/exchange.hpp"
#include "base/status.hpp"
#include "memory/heap.hpp"

namespace nearlight::cli {

class HeapPair {
 public:
  HeapPair(std::unique_ptr<memory::Heap> first, std::unique_ptr<memory::Heap> second)
      : heaps_{std::move(first), std::move(second)} {}
  const memory::Heap& of(int rank) const { return *heaps_[rank]; }

 private:
  std::unique_ptr<memory::Heap> heaps_[2];
};

using MakeHeap = std::function<Result<std::unique_ptr<memory::Heap>>(Exchange&, Deadline)>;

// Calls `make` for both ranks of a group in this process, each on its own thread; within 30 s.
Result<HeapPair> make_heap_pair(const MakeHeap& make);

}  // namespace nearlight::cli
