#include "runtime/cuda_control.hpp"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

#include "runtime/cuda_call.hpp"

namespace nearlight::runtime {

namespace {

std::mutex retired_mutex;
std::vector<std::shared_ptr<CudaControl>> retired;

// Runs on a thread of CUDA's when the last graph that holds the control is destroyed.
void CUDART_CB retire(void* held) {
  auto* const control = static_cast<std::shared_ptr<CudaControl>*>(held);
  const std::lock_guard lock(retired_mutex);
  retired.push_back(std::move(*control));
  delete control;
}

}  // namespace

Result<std::shared_ptr<CudaControl>> CudaControl::create(int device, std::uint32_t regions,
                                                         std::uint32_t initial_epoch) {
  std::shared_ptr<CudaControl> control(new CudaControl);
  control->device_ = device;
  const std::size_t states_bytes = regions * sizeof(algorithm::cuda::RegionStateWords);
  NL_TRY_CUDA(cudaMalloc(reinterpret_cast<void**>(&control->states_), states_bytes));
  NL_TRY_CUDA(cudaMalloc(reinterpret_cast<void**>(&control->claim_), 128));
  NL_TRY_CUDA(cudaHostAlloc(reinterpret_cast<void**>(&control->host_), sizeof(HostPart),
                            cudaHostAllocMapped | cudaHostAllocPortable));
  new (control->host_) HostPart{};
  void* device_view = nullptr;
  NL_TRY_CUDA(cudaHostGetDevicePointer(&device_view, control->host_, 0));
  if (device_view != control->host_) {
    return failure(Code::unsupported,
                   "pinned host memory has another address on device %d: unified addressing is needed",
                   device);
  }
  NL_TRY(control->rearm(regions, initial_epoch));
  return control;
}

Result<std::uint32_t> CudaControl::highest_epoch(std::uint32_t regions) const {
  std::vector<algorithm::cuda::RegionStateWords> states(regions);
  NL_TRY_CUDA(cudaMemcpy(states.data(), states_, regions * sizeof states[0], cudaMemcpyDeviceToHost));
  std::uint32_t highest = 0;
  for (const auto& state : states) highest = std::max(highest, state.epoch);
  return highest;
}

Status CudaControl::rearm(std::uint32_t regions, std::uint32_t epoch) const {
  std::vector<algorithm::cuda::RegionStateWords> states(regions);
  for (auto& state : states) state.epoch = epoch;
  NL_TRY_CUDA(cudaMemcpy(states_, states.data(), regions * sizeof states[0], cudaMemcpyHostToDevice));
  NL_TRY_CUDA(cudaMemset(claim_, 0, 128));
  NL_TRY_CUDA(cudaStreamSynchronize(cudaStreamLegacy));
  return {};
}

void CudaControl::clear_host_words() const {
  std::atomic_ref(host_->abort).store(0, std::memory_order_relaxed);
  std::atomic_ref(host_->valid).store(0, std::memory_order_release);
}

CudaControl::~CudaControl() {
  const DeviceGuard guard(device_);
  // The results are of no use here: the memory is gone either way, and there is nobody left to tell.
  if (states_ != nullptr) (void)cudaFree(states_);
  if (claim_ != nullptr) (void)cudaFree(claim_);
  if (trace_ != nullptr) (void)cudaFree(trace_);
  if (turns_ != nullptr) (void)cudaFree(turns_);
  if (pipe_ends_ != nullptr) (void)cudaFree(pipe_ends_);
  if (host_ != nullptr) (void)cudaFreeHost(host_);
  if (staging_ != nullptr) (void)cudaFreeHost(staging_);
  if (buffer_ != nullptr) (void)cudaFree(buffer_);
}

void CudaControl::name_in(algorithm::cuda::AllReduceArgs& args) const {
  args.states = states();
  args.abort = abort_word();
  args.claim = claim();
  args.valid = valid_word();
  args.record = record();
  args.trace = trace();
}

Status CudaControl::add_pipes(std::uint32_t ends) {
  NL_TRY_CUDA(cudaMalloc(reinterpret_cast<void**>(&pipe_ends_), ends * sizeof *pipe_ends_));
  pipe_end_count_ = ends;
  return rest_pipes(0);
}

Status CudaControl::rest_pipes(std::uint32_t turn) const {
  const std::vector<algorithm::cuda::PipeStateWords> ends(pipe_end_count_, {{turn, turn}, {turn, turn}});
  NL_TRY_CUDA(cudaMemcpy(pipe_ends_, ends.data(), ends.size() * sizeof ends[0], cudaMemcpyHostToDevice));
  NL_TRY_CUDA(cudaStreamSynchronize(cudaStreamLegacy));
  return {};
}

Status CudaControl::add_staging() {
  NL_TRY_CUDA(cudaHostAlloc(reinterpret_cast<void**>(&staging_), sizeof(Staging),
                            cudaHostAllocMapped | cudaHostAllocPortable));
  new (&staging_->turn) algorithm::cuda::HostTurnWords{};
  return {};
}

Status CudaControl::add_buffer(std::size_t bytes) {
  NL_TRY_CUDA(cudaMalloc(&buffer_, bytes));
  NL_TRY_CUDA(cudaMemset(buffer_, 0, bytes));
  NL_TRY_CUDA(cudaStreamSynchronize(cudaStreamLegacy));
  return {};
}

Status CudaControl::add_trace(std::uint32_t regions, std::size_t turn_rings) {
  const std::size_t bytes = std::size_t{regions} * trace::kLinesOnGpu * sizeof(trace::EpochTimes);
  NL_TRY_CUDA(cudaMalloc(reinterpret_cast<void**>(&trace_), bytes));
  NL_TRY_CUDA(cudaMemset(trace_, 0, bytes));
  const std::size_t turn_bytes = turn_rings * trace::kTurnLinesOnGpu * sizeof(trace::TurnTimes);
  NL_TRY_CUDA(cudaMalloc(reinterpret_cast<void**>(&turns_), turn_bytes));
  NL_TRY_CUDA(cudaMemset(turns_, 0, turn_bytes));
  NL_TRY_CUDA(cudaStreamSynchronize(cudaStreamLegacy));
  return {};
}

bool CudaControl::has_fault() const {
  // [F1] pairs with report_fault's release store.
  return std::atomic_ref(host_->valid).load(std::memory_order_acquire) != 0;
}

void CudaControl::set_abort() const { std::atomic_ref(host_->abort).store(1, std::memory_order_relaxed); }

Result<std::vector<std::uint32_t>> CudaControl::epochs(std::uint32_t regions) const {
  const DeviceGuard guard(device_);
  NL_TRY(guard.status());
  NL_TRY_CUDA(cudaDeviceSynchronize());
  std::vector<algorithm::cuda::RegionStateWords> states(regions);
  NL_TRY_CUDA(cudaMemcpy(states.data(), states_, regions * sizeof states[0], cudaMemcpyDeviceToHost));
  std::vector<std::uint32_t> epochs;
  for (const auto& state : states) epochs.push_back(state.epoch);
  return epochs;
}

Status CudaControl::close(std::uint32_t regions) const {
  const DeviceGuard guard(device_);
  NL_TRY(guard.status());
  set_abort();
  // Nobody answers any more.
  if (staging_ != nullptr) std::atomic_ref(staging_->turn.stopped).store(1, std::memory_order_relaxed);
  NL_TRY_CUDA(cudaDeviceSynchronize());
  std::vector<algorithm::cuda::RegionStateWords> states(regions);
  for (auto& state : states) state.failed = 1;
  NL_TRY_CUDA(cudaMemcpy(states_, states.data(), regions * sizeof states[0], cudaMemcpyHostToDevice));
  return {};
}

Result<bool> CudaControl::retain_for_capture(const std::shared_ptr<CudaControl>& self, cudaStream_t stream) {
  cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
  unsigned long long id = 0;
  cudaGraph_t graph = nullptr;
  NL_TRY_CUDA(cudaStreamGetCaptureInfo(stream, &capture, &id, &graph, nullptr, nullptr, nullptr));
  if (capture != cudaStreamCaptureStatusActive) return false;
  if (id == self->last_capture_) return true;
  auto held = std::make_unique<std::shared_ptr<CudaControl>>(self);
  cudaUserObject_t object = nullptr;
  NL_TRY_CUDA(cudaUserObjectCreate(&object, held.get(), retire, 1, cudaUserObjectNoDestructorSync));
  held.release();  // from here on `retire` frees it
  if (const cudaError_t error = cudaGraphRetainUserObject(graph, object, 1, cudaGraphUserObjectMove);
      error != cudaSuccess) {
    (void)cudaUserObjectRelease(object, 1);  // runs `retire`; the failure below is what counts
    return cuda_status("cudaGraphRetainUserObject", error);
  }
  self->last_capture_ = id;
  return true;
}

Result<bool> CudaControl::is_capturing(cudaStream_t stream) {
  cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
  NL_TRY_CUDA(cudaStreamIsCapturing(stream, &capture));
  return capture == cudaStreamCaptureStatusActive;
}

void CudaControl::free_retired() {
  std::vector<std::shared_ptr<CudaControl>> mine;
  {
    const std::lock_guard lock(retired_mutex);
    mine.swap(retired);
  }
}

}  // namespace nearlight::runtime
