// A symmetric heap on the GPUs of one host, from the driver's virtual memory functions.
#pragma once

#include <cstddef>
#include <memory>

#include "base/deadline.hpp"
#include "base/exchange.hpp"
#include "memory/heap.hpp"

namespace nearlight::memory {

// Collective among ranks of one process or of several (the memory then travels as file descriptors); several
// of them may use one device. Devices that differ must reach each other's memory. Either all ranks get a heap
// or none does. `device`: this process's number of it. The caller's current device stays what it was.
//
// A rank's part stays as long as any rank has its heap, so a kernel of a rank that is later than the others
// still stores into memory. A rank must not destroy its heap while its own kernels use it.
Result<std::unique_ptr<Heap>> create_cuda_vmm_heap(Exchange& exchange, int device, std::size_t bytes,
                                                   Deadline deadline);

}  // namespace nearlight::memory
