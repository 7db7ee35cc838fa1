// CUDA errors as Status, and the caller's current device put back.
#pragma once

#include <cuda_runtime_api.h>

#include "base/status.hpp"

namespace nearlight::runtime {

// Code::cuda_error with the call's name and CUDA's text. The error is cleared: it must not fail the program's
// next check.
inline Status cuda_status(const char* call, cudaError_t error) {
  if (error == cudaSuccess) return {};
  (void)cudaGetLastError();
  return failure(Code::cuda_error, "%s: %s", call, cudaGetErrorString(error));
}

#define NL_TRY_CUDA(expression) NL_TRY(::nearlight::runtime::cuda_status(#expression, expression))

// Makes `device` current and the former one again at the end.
class DeviceGuard {
 public:
  explicit DeviceGuard(int device) {
    status_ = cuda_status("cudaGetDevice", cudaGetDevice(&before_));
    if (status_.ok() && before_ != device) {
      status_ = cuda_status("cudaSetDevice", cudaSetDevice(device));
      changed_ = status_.ok();
    }
  }
  DeviceGuard(const DeviceGuard&) = delete;
  ~DeviceGuard() {
    if (changed_) (void)cudaSetDevice(before_);
  }
  Status status() const { return status_; }

 private:
  int before_ = 0;
  bool changed_ = false;
  Status status_;
};

}  // namespace nearlight::runtime
