// A symmetric heap in the CPU's memory.
#pragma once

#include <cstddef>
#include <memory>

#include "base/deadline.hpp"
#include "base/exchange.hpp"
#include "memory/heap.hpp"

namespace nearlight::memory {

// Collective. Ranks that are processes map one memfd (nothing to clean up after a kill); ranks that are
// threads share one anonymous mapping, which is unmapped with the last of their heaps. `bytes` > 0 and the
// same on all ranks. Either all ranks get a heap or none does. All pages are in place at return, each rank's
// on its own NUMA node as far as the system decides so.
Result<std::unique_ptr<Heap>> create_shm_heap(Exchange& exchange, std::size_t bytes, Deadline deadline);

}  // namespace nearlight::memory
