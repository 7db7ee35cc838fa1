#include "dropin/tails.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>

#include "algorithm/cuda/full_stop.hpp"
#include "dropin/capture.hpp"
#include "dropin/companion.hpp"
#include "dropin/real_nccl.hpp"
#include "route/nccl.hpp"
#include "runtime/cuda_call.hpp"

namespace nearlight::dropin {

namespace {

// A place for each stream and device that was ever marked, found from the stream's bits on; a place stays.
struct Tail {
  std::atomic<std::uintptr_t> stream{0};  // + 1; 0: free. Written last.
  std::atomic<int> device{0};
  std::atomic<bool> open{false};                  // ours is the last
  std::atomic<unsigned long long> stopped_in{0};  // the capture that has its own stop behind ours; 0: none
};
constexpr std::size_t kTails = 256, kSteps = 16;
constexpr int kUnasked = -2;
constinit Tail all[kTails];
// Some stream found no place: from then on each is stopped, every time.
constinit std::atomic<bool> full{false};

std::uintptr_t key_of(void* stream) { return reinterpret_cast<std::uintptr_t>(stream) + 1; }

Tail& tail_at(void* stream, std::size_t step) {
  const auto bits = reinterpret_cast<std::uintptr_t>(stream);
  return all[((bits ^ bits >> 6 ^ bits >> 12) + step) % kTails];
}

// -1: NCCL does not tell.
int device_of(ncclComm* comm) {
  const RealNccl* const nccl = real_nccl();
  int device = -1;
  if (nccl == nullptr || nccl->ncclCommCuDevice == nullptr) return -1;
  return nccl->ncclCommCuDevice(comm, &device) == ncclSuccess ? device : -1;
}

}  // namespace

void tails::mark(void* stream, int device) {
  const RealNccl* const nccl = real_nccl();
  if (nccl == nullptr || !route::starts_before_its_input(nccl->version)) return;
  static std::mutex mutex;  // for places that are new
  for (std::size_t step = 0; step < kSteps; ++step) {
    Tail& tail = tail_at(stream, step);
    if (tail.stream.load(std::memory_order_acquire) == 0) {
      const std::lock_guard lock(mutex);
      if (tail.stream.load(std::memory_order_relaxed) == 0) {
        tail.device.store(device, std::memory_order_relaxed);
        tail.stream.store(key_of(stream), std::memory_order_release);  // pairs with the loads
      }
    }
    if (tail.stream.load(std::memory_order_acquire) != key_of(stream) ||
        tail.device.load(std::memory_order_relaxed) != device) {
      continue;
    }
    tail.stopped_in.store(0, std::memory_order_relaxed);
    tail.open.store(true, std::memory_order_release);
    return;
  }
  full.store(true, std::memory_order_release);
}

Status before_nccl(ncclComm* comm, void* stream) {
  const bool all_stop = full.load(std::memory_order_acquire);
  Tail* tail = nullptr;
  // The default stream has the same number on all devices, and the handle of a stream that is gone may be
  // that of one on another device now; this one's device is the communicator's.
  int device = kUnasked;
  for (std::size_t step = 0; step < kSteps && !all_stop; ++step) {
    Tail& one = tail_at(stream, step);
    const std::uintptr_t name = one.stream.load(std::memory_order_acquire);
    if (name == 0) break;
    if (name != key_of(stream) || !one.open.load(std::memory_order_acquire)) continue;
    if (device == kUnasked) device = device_of(comm);
    if (one.device.load(std::memory_order_relaxed) == device) tail = &one;
  }
  if (tail == nullptr && !all_stop) return {};
  if (device == kUnasked) device = device_of(comm);
  if (device < 0) return {};  // NCCL refuses it, too
  const runtime::DeviceGuard guard(device);
  NL_TRY(guard.status());
  auto* const on = static_cast<cudaStream_t>(stream);
  if (tail == nullptr) return algorithm::cuda::launch_full_stop(on);
  NL_TRY_ASSIGN(const unsigned long long capture, capture_of(on));
  // A stop that is captured stops the graph's operations alone; what is eager finds the mark later.
  if (capture != 0 && tail->stopped_in.load(std::memory_order_relaxed) == capture) return {};
  NL_TRY(algorithm::cuda::launch_full_stop(on));
  if (capture != 0) {
    tail->stopped_in.store(capture, std::memory_order_relaxed);
  } else if (on !=
             cudaStreamPerThread) {  // a handle for the streams of all threads: which one it was is not known
    tail->open.store(false, std::memory_order_relaxed);
  }
  return {};
}

}  // namespace nearlight::dropin
