// A symmetric heap: every rank has the same number of bytes, and everyone reaches rank p's byte `offset` at
// base + p * stride + offset. No table of pointers anywhere.
#pragma once

#include <cstddef>
#include <string>

#include "base/status.hpp"

namespace nearlight::memory {

struct HeapView {
  char* base = nullptr;    // of rank 0's part, in this rank's address space (device addresses for GPU heaps)
  std::size_t stride = 0;  // bytes from one rank's part to the next
  std::size_t bytes = 0;   // usable bytes of each part
  int rank = 0;
  int nranks = 1;

  char* part(int peer) const { return base + static_cast<std::size_t>(peer) * stride; }
  char* mine() const { return part(rank); }
};

// Freed on destruction. All bytes are zero at creation, on every rank, before any rank's create call returns.
class Heap {
 public:
  virtual ~Heap() = default;
  virtual const HeapView& view() const = 0;
  // "shm", "cuda_vmm", "nccl_window".
  virtual const char* kind() const = 0;
};

}  // namespace nearlight::memory
