// The capture that a stream is in.
#pragma once

#include <cuda_runtime_api.h>

#include "base/status.hpp"
#include "runtime/cuda_call.hpp"

namespace nearlight::dropin {

// Its number; 0: none.
inline Result<unsigned long long> capture_of(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  unsigned long long id = 0;
  NL_TRY_CUDA(cudaStreamGetCaptureInfo(stream, &status, &id, nullptr, nullptr, nullptr, nullptr));
  return status == cudaStreamCaptureStatusActive ? id : 0;
}

}  // namespace nearlight::dropin
