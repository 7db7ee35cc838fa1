// Questions to CUDA while a stream captures.
#pragma once

#include <cuda_runtime_api.h>

#include "runtime/cuda_call.hpp"

namespace nearlight::runtime {

// Lets this thread ask questions while some stream captures, whatever the mode of that capture.
class RelaxedCapture {
 public:
  RelaxedCapture() {
    status_ = cuda_status("cudaThreadExchangeStreamCaptureMode", cudaThreadExchangeStreamCaptureMode(&mode_));
  }
  RelaxedCapture(const RelaxedCapture&) = delete;
  ~RelaxedCapture() {
    if (status_.ok()) (void)cudaThreadExchangeStreamCaptureMode(&mode_);
  }
  Status status() const { return status_; }

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
  Status status_;
};

}  // namespace nearlight::runtime
