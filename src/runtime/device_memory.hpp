// Memory of the current GPU that frees itself.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

#include "runtime/cuda_call.hpp"

namespace nearlight::runtime {

class DeviceMemory {
 public:
  DeviceMemory() = default;
  DeviceMemory(const DeviceMemory&) = delete;
  ~DeviceMemory() { reset(); }
  void reset() {
    // Nobody to tell, and the memory is gone either way.
    if (memory_ != nullptr) (void)cudaFree(memory_);
    memory_ = nullptr;
  }
  Status allocate(std::size_t bytes) { return cuda_status("cudaMalloc", cudaMalloc(&memory_, bytes)); }
  void* get() const { return memory_; }

 private:
  void* memory_ = nullptr;
};

}  // namespace nearlight::runtime
