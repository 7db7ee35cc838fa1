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

// Those that nobody holds any more. Linked through themselves: who lets go last may be a thread of CUDA's,
// which nothing must be thrown into. Not freed at the end of the process, when CUDA may be gone.
std::mutex retired_mutex;
CudaControl* retired = nullptr;

// Runs on a thread of CUDA's when a graph that holds the control is destroyed, and what it runs has ended.
void CUDART_CB let_go(void* held) { delete static_cast<std::shared_ptr<CudaControl>*>(held); }

Status zero(void* memory, std::size_t bytes) {
  NL_TRY_CUDA(cudaMemset(memory, 0, bytes));
  return {};
}

}  // namespace

void CudaControl::retire(std::unique_ptr<CudaControl> control) noexcept {
  const std::lock_guard lock(retired_mutex);
  control->next_.reset(retired);
  retired = control.release();
}

std::unique_ptr<CudaControl> CudaControl::take_retired(int device, const Parts& parts) {
  const std::lock_guard lock(retired_mutex);
  std::unique_ptr<CudaControl> all(retired), found;
  for (std::unique_ptr<CudaControl>* at = &all; *at != nullptr; at = &(*at)->next_) {
    if (!(*at)->whole_ || (*at)->device_ != device || (*at)->parts_ != parts) continue;
    found = std::move(*at);
    *at = std::move(found->next_);
    break;
  }
  retired = all.release();
  return found;
}

void CudaControl::free_retired(int device) {
  std::unique_ptr<CudaControl> mine;
  {
    const std::lock_guard lock(retired_mutex);
    std::unique_ptr<CudaControl> all(retired);
    for (std::unique_ptr<CudaControl>* at = &all; *at != nullptr;) {
      if ((*at)->device_ != device) {
        at = &(*at)->next_;
        continue;
      }
      std::unique_ptr<CudaControl> one = std::move(*at);
      *at = std::move(one->next_);
      one->next_ = std::move(mine);
      mine = std::move(one);
    }
    retired = all.release();
  }
  while (mine != nullptr) mine = std::move(mine->next_);
}

Result<std::shared_ptr<CudaControl>> CudaControl::create(int device, const Parts& parts,
                                                         std::uint32_t initial_epoch) {
  std::unique_ptr<CudaControl> made = take_retired(device, parts);
  const bool is_new = made == nullptr;
  if (is_new) made.reset(new CudaControl(device, parts));
  std::shared_ptr<CudaControl> control(made.release(),
                                       [](CudaControl* last) { retire(std::unique_ptr<CudaControl>(last)); });
  if (is_new) NL_TRY(control->allocate());
  NL_TRY(control->rest(initial_epoch));
  return control;
}

Status CudaControl::allocate() {
  NL_TRY_CUDA(cudaMalloc(reinterpret_cast<void**>(&states_), parts_.regions * sizeof *states_));
  NL_TRY_CUDA(cudaMalloc(reinterpret_cast<void**>(&claim_), kClaimBytes));
  NL_TRY_CUDA(cudaHostAlloc(reinterpret_cast<void**>(&host_), sizeof(HostPart),
                            cudaHostAllocMapped | cudaHostAllocPortable));
  void* device_view = nullptr;
  NL_TRY_CUDA(cudaHostGetDevicePointer(&device_view, host_, 0));
  if (device_view != host_) {
    return failure(Code::unsupported,
                   "pinned host memory has another address on device %d: unified addressing is needed",
                   device_);
  }
  if (parts_.pipe_ends != 0)
    NL_TRY_CUDA(cudaMalloc(reinterpret_cast<void**>(&pipe_ends_), parts_.pipe_ends * sizeof *pipe_ends_));
  if (parts_.traced) {
    NL_TRY_CUDA(cudaMalloc(reinterpret_cast<void**>(&trace_), trace_bytes()));
    NL_TRY_CUDA(cudaMalloc(reinterpret_cast<void**>(&turns_), turns_bytes()));
  }
  if (parts_.staging) {
    NL_TRY_CUDA(cudaHostAlloc(reinterpret_cast<void**>(&staging_), sizeof(Staging),
                              cudaHostAllocMapped | cudaHostAllocPortable));
  }
  if (parts_.buffer_bytes != 0) NL_TRY_CUDA(cudaMalloc(&buffer_, parts_.buffer_bytes));
  whole_ = true;
  return {};
}

Status CudaControl::rest(std::uint32_t initial_epoch) {
  last_capture_ = 0;
  new (host_) HostPart{};
  if (staging_ != nullptr) new (&staging_->turn) algorithm::cuda::HostTurnWords{};
  if (trace_ != nullptr) NL_TRY(zero(trace_, trace_bytes()));
  if (turns_ != nullptr) NL_TRY(zero(turns_, turns_bytes()));
  if (buffer_ != nullptr) NL_TRY(zero(buffer_, parts_.buffer_bytes));
  if (pipe_ends_ != nullptr) NL_TRY(rest_pipes(0));
  return rearm(parts_.regions, initial_epoch);
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
  NL_TRY_CUDA(cudaMemset(claim_, 0, kClaimBytes));
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

Status CudaControl::rest_pipes(std::uint32_t turn) const {
  const std::vector<algorithm::cuda::PipeStateWords> ends(parts_.pipe_ends, {{turn, turn}, {turn, turn}});
  NL_TRY_CUDA(cudaMemcpy(pipe_ends_, ends.data(), ends.size() * sizeof ends[0], cudaMemcpyHostToDevice));
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
  NL_TRY_CUDA(cudaUserObjectCreate(&object, held.get(), let_go, 1, cudaUserObjectNoDestructorSync));
  held.release();  // from here on `let_go` frees it
  if (const cudaError_t error = cudaGraphRetainUserObject(graph, object, 1, cudaGraphUserObjectMove);
      error != cudaSuccess) {
    (void)cudaUserObjectRelease(object, 1);  // runs `let_go`; the failure below is what counts
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

}  // namespace nearlight::runtime
