#include "runtime/stream_order.hpp"

#include <cstdio>

#include "base/log.hpp"
#include "runtime/cuda_call.hpp"

namespace nearlight::runtime {

StreamOrder::~StreamOrder() {
  // Nobody to tell.
  if (event_ != nullptr) (void)cudaEventDestroy(event_);
}

Status StreamOrder::begin() {
  return cuda_status("cudaEventCreateWithFlags", cudaEventCreateWithFlags(&event_, cudaEventDisableTiming));
}

Status StreamOrder::before(cudaStream_t stream, int rank) {
  if (event_ == nullptr || !recorded_ || stream == last_) return {};
  const cudaError_t state = cudaEventQuery(event_);
  if (state != cudaErrorNotReady) return cuda_status("cudaEventQuery", state);
  (void)cudaGetLastError();  // "not ready" is an answer
  NL_TRY_CUDA(cudaStreamWaitEvent(stream, event_, 0));
  if (reported_) return {};
  reported_ = true;
  char text[240];
  std::snprintf(
      text, sizeof text,
      "check mode: a call of rank %d on stream %p while its call on stream %p has not ended; streams of "
      "one communicator must be joined by events (in check mode the calls are put in order)",
      rank, static_cast<void*>(stream), static_cast<void*>(last_));
  log::warn(text);
  return {};
}

Status StreamOrder::after(cudaStream_t stream) {
  if (event_ == nullptr) return {};
  NL_TRY_CUDA(cudaEventRecord(event_, stream));
  last_ = stream;
  recorded_ = true;
  return {};
}

}  // namespace nearlight::runtime
