#include "runtime/cuda_clock.hpp"

#include <cuda_runtime_api.h>

#include <atomic>

#include <nearlight/detail/exec/host_space.hpp>
#include "algorithm/cuda/clock.hpp"
#include "base/deadline.hpp"
#include "runtime/cuda_call.hpp"

namespace nearlight::runtime {

namespace {

constexpr int kPairs = 64;
constexpr std::int64_t kLimitMs = 500;

struct Bench {
  cudaStream_t stream = nullptr;
  std::uint64_t* word = nullptr;  // pinned, mapped at the same address

  Bench() = default;
  Bench(const Bench&) = delete;
  ~Bench() {
    // Nobody to tell.
    if (stream != nullptr) (void)cudaStreamDestroy(stream);
    if (word != nullptr) (void)cudaFreeHost(word);
  }
};

}  // namespace

Result<ClockOffset> measure_clock_offset() {
  Bench bench;
  NL_TRY_CUDA(cudaHostAlloc(reinterpret_cast<void**>(&bench.word), sizeof *bench.word,
                            cudaHostAllocMapped | cudaHostAllocPortable));
  NL_TRY_CUDA(cudaStreamCreateWithFlags(&bench.stream, cudaStreamNonBlocking));
  const Deadline deadline = Deadline::after_ms(kLimitMs);
  ClockOffset best;
  for (int pair = 0; pair < kPairs; ++pair) {
    std::atomic_ref word(*bench.word);
    word.store(0);
    const std::uint64_t before_ns = exec::HostSpace::now_ns();
    NL_TRY(algorithm::cuda::launch_clock(bench.word, bench.stream));
    std::uint64_t gpu_ns = 0;
    while ((gpu_ns = word.load(std::memory_order_acquire)) == 0) {
      if (!deadline.passed()) continue;
      NL_TRY_CUDA(cudaStreamSynchronize(bench.stream));  // it still has the word
      return failure(Code::timeout, "the GPU did not tell its time within %lld ms",
                     static_cast<long long>(kLimitMs));
    }
    const std::uint64_t after_ns = exec::HostSpace::now_ns();
    // The GPU read its clock somewhere between the two.
    const auto error = static_cast<std::int64_t>((after_ns - before_ns + 1) / 2);
    if (pair == 0 || error < best.error_ns) {
      best.error_ns = error;
      best.offset_ns = static_cast<std::int64_t>(before_ns) + error - static_cast<std::int64_t>(gpu_ns);
    }
  }
  NL_TRY_CUDA(cudaStreamSynchronize(bench.stream));
  return best;
}

}  // namespace nearlight::runtime
