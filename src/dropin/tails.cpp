#include "dropin/tails.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>

#include "algorithm/cuda/full_stop.hpp"
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
  std::atomic<bool> open{false};  // ours is the last
};
constexpr std::size_t kTails = 256, kSteps = 16;
constinit Tail all[kTails];
// Some stream found no place: from then on each is stopped, every time.
constinit std::atomic<bool> full{false};

std::uintptr_t key_of(void* stream) { return reinterpret_cast<std::uintptr_t>(stream) + 1; }

Tail& tail_at(void* stream, std::size_t step) {
  const auto bits = reinterpret_cast<std::uintptr_t>(stream);
  return all[((bits ^ bits >> 6 ^ bits >> 12) + step) % kTails];
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
    tail.open.store(true, std::memory_order_release);
    return;
  }
  full.store(true, std::memory_order_release);
}

Status before_nccl(void* stream) {
  if (full.load(std::memory_order_acquire))
    return algorithm::cuda::launch_full_stop(static_cast<cudaStream_t>(stream));
  // The default stream has the same number on all devices, so there may be several.
  for (std::size_t step = 0; step < kSteps; ++step) {
    Tail& tail = tail_at(stream, step);
    const std::uintptr_t name = tail.stream.load(std::memory_order_acquire);
    if (name == 0) return {};
    if (name != key_of(stream) || !tail.open.load(std::memory_order_acquire)) continue;
    tail.open.store(false, std::memory_order_relaxed);
    const runtime::DeviceGuard guard(tail.device.load(std::memory_order_relaxed));
    NL_TRY(guard.status());
    NL_TRY(algorithm::cuda::launch_full_stop(static_cast<cudaStream_t>(stream)));
  }
  return {};
}

}  // namespace nearlight::dropin
