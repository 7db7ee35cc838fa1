// CUDA errors as Status, and CUDA objects that free themselves.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <utility>

#include "base/status.hpp"

namespace nearlight::probe {

// Code::cuda_error with the call's name and CUDA's text. The error is cleared: it must not fail the program's
// next check.
inline Status cuda_status(const char* call, cudaError_t error) {
  if (error == cudaSuccess) return {};
  (void)cudaGetLastError();
  return failure(Code::cuda_error, "%s: %s", call, cudaGetErrorString(error));
}

#define NL_PROBE_CUDA(expression) NL_TRY(::nearlight::probe::cuda_status(#expression, expression))

// One CUDA object, freed by `free` with its device current.
template <class T, auto free>
class Owned {
 public:
  Owned() = default;
  Owned(T value, int device) : value_(value), device_(device) {}
  Owned(Owned&& other) noexcept : value_(std::exchange(other.value_, T{})), device_(other.device_) {}
  Owned& operator=(Owned&& other) noexcept {
    std::swap(value_, other.value_);
    std::swap(device_, other.device_);
    return *this;
  }
  ~Owned() {
    if (value_ == T{}) return;
    int before = device_;
    (void)cudaGetDevice(&before);
    (void)cudaSetDevice(device_);
    (void)free(value_);
    (void)cudaSetDevice(before);
  }
  T get() const { return value_; }

 private:
  T value_{};
  int device_ = 0;
};

using Stream = Owned<cudaStream_t, cudaStreamDestroy>;
using Event = Owned<cudaEvent_t, cudaEventDestroy>;
using Graph = Owned<cudaGraph_t, cudaGraphDestroy>;
using GraphExec = Owned<cudaGraphExec_t, cudaGraphExecDestroy>;
using DeviceMemory = Owned<void*, cudaFree>;

// Puts back the device that was current.
class DeviceKeeper {
 public:
  DeviceKeeper() { known_ = cudaGetDevice(&before_) == cudaSuccess; }
  DeviceKeeper(const DeviceKeeper&) = delete;
  ~DeviceKeeper() {
    if (known_) (void)cudaSetDevice(before_);
  }

 private:
  int before_ = 0;
  bool known_ = false;
};

}  // namespace nearlight::probe
