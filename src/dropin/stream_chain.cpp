#include "dropin/stream_chain.hpp"

#include <chrono>
#include <thread>

#include "runtime/capture_mode.hpp"
#include "runtime/cuda_call.hpp"

namespace nearlight::dropin {

namespace {

Status make_event(cudaEvent_t& event) {
  return runtime::cuda_status("cudaEventCreateWithFlags",
                              cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
}

// The capture that the stream is in; 0: none.
Result<unsigned long long> capture_of(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  unsigned long long id = 0;
  NL_TRY_CUDA(cudaStreamGetCaptureInfo(stream, &status, &id, nullptr, nullptr, nullptr, nullptr));
  return status == cudaStreamCaptureStatusActive ? id : 0;
}

}  // namespace

StreamChain::~StreamChain() {
  // Nobody to tell.
  for (const cudaEvent_t event : {eager_.event, captured_.event}) {
    if (event != nullptr) (void)cudaEventDestroy(event);
  }
  for (const cudaEvent_t event : joints_) (void)cudaEventDestroy(event);
}

Status StreamChain::begin() {
  NL_TRY(make_event(eager_.event));
  return make_event(captured_.event);
}

Status StreamChain::before(cudaStream_t stream) {
  NL_TRY_ASSIGN(const unsigned long long capture, capture_of(stream));
  const Link& link = capture != 0 ? captured_ : eager_;
  if (!link.recorded || link.stream == stream || link.capture != capture) return {};
  NL_TRY_CUDA(cudaStreamWaitEvent(stream, link.event, 0));
  return {};
}

Status StreamChain::after(cudaStream_t stream) {
  NL_TRY_ASSIGN(const unsigned long long capture, capture_of(stream));
  Link& link = capture != 0 ? captured_ : eager_;
  NL_TRY_CUDA(cudaEventRecord(link.event, stream));
  link.stream = stream;
  link.capture = capture;
  link.recorded = true;
  return {};
}

Status StreamChain::join(std::span<void* const> streams) {
  while (joints_.size() < streams.size()) {
    cudaEvent_t event = nullptr;
    NL_TRY(make_event(event));
    joints_.push_back(event);
  }
  for (std::size_t i = 0; i < streams.size(); ++i)
    NL_TRY_CUDA(cudaEventRecord(joints_[i], static_cast<cudaStream_t>(streams[i])));
  for (std::size_t i = 0; i < streams.size(); ++i) {
    for (std::size_t j = 0; j < streams.size(); ++j) {
      if (i != j) NL_TRY_CUDA(cudaStreamWaitEvent(static_cast<cudaStream_t>(streams[i]), joints_[j], 0));
    }
  }
  return {};
}

Status StreamChain::drain(Deadline deadline) const {
  if (!eager_.recorded) return {};
  const runtime::RelaxedCapture relaxed;
  NL_TRY(relaxed.status());
  for (;;) {
    const cudaError_t state = cudaEventQuery(eager_.event);
    if (state != cudaErrorNotReady) return runtime::cuda_status("cudaEventQuery", state);
    (void)cudaGetLastError();  // "not ready" is an answer
    if (deadline.passed())
      return failure(Code::timeout, "the communicator's operations have not ended in time");
    std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
}

}  // namespace nearlight::dropin
