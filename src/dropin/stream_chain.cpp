#include "dropin/stream_chain.hpp"

#include <chrono>
#include <cstdint>
#include <thread>

#include "dropin/capture.hpp"
#include "runtime/capture_mode.hpp"
#include "runtime/cuda_call.hpp"

namespace nearlight::dropin {

namespace {

Status make_event(cudaEvent_t& event) {
  return runtime::cuda_status("cudaEventCreateWithFlags",
                              cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
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

Result<StreamChain::Place> StreamChain::place_of(cudaStream_t stream) {
  Place place;
  NL_TRY_ASSIGN(place.capture, capture_of(stream));
  if (place.capture != 0) {
    place.id = reinterpret_cast<std::uintptr_t>(stream);
  } else {
    NL_TRY_CUDA(cudaStreamGetId(stream, &place.id));
  }
  return place;
}

// Whether the next operation there must be told to wait: stream order does not do it.
bool StreamChain::Place::is_before(const Place& next) const {
  if (capture != next.capture) return false;
  const bool of_a_thread = capture != 0 && id == reinterpret_cast<std::uintptr_t>(cudaStreamPerThread);
  return id != next.id || of_a_thread;
}

Status StreamChain::before(cudaStream_t stream) {
  NL_TRY_ASSIGN(const Place place, place_of(stream));
  const Link& link = place.capture != 0 ? captured_ : eager_;
  if (!link.recorded || !link.place.is_before(place)) return {};
  NL_TRY_CUDA(cudaStreamWaitEvent(stream, link.event, 0));
  return {};
}

Status StreamChain::after(cudaStream_t stream) {
  NL_TRY_ASSIGN(const Place place, place_of(stream));
  Link& link = place.capture != 0 ? captured_ : eager_;
  NL_TRY_CUDA(cudaEventRecord(link.event, stream));
  link.place = place;
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
