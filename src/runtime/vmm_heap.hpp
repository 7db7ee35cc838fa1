// CUDA's own memory for GPU communicators.
#pragma once

#include <cstddef>
#include <memory>

#include "base/exchange.hpp"
#include "memory/cuda_vmm_heap.hpp"

namespace nearlight::runtime {

// A CudaCommunicator::MakeHeap without a context.
inline Result<std::unique_ptr<memory::Heap>> make_vmm_heap(void*, Exchange& group, int device,
                                                           std::size_t bytes, Deadline deadline) {
  return memory::create_cuda_vmm_heap(group, device, bytes, deadline);
}

}  // namespace nearlight::runtime
