// GPU ranks: one thread and one stream each.
//
// How the ranks start a sample together, so that what one is late by is not measured:
//   graph   A kernel holds every stream back until all ranks have enqueued everything. Behind it comes one
//           all-reduce that is not timed: it ends on all ranks within the time of one store. Then an event,
//           the graph of `chain` operations, an event. What is left of the skew, below a microsecond, is
//           divided by `chain`.
//   eager   All ranks begin at one moment of the clock they share (Meeting::align), and time counts from it.
//           A second job's graph waits behind the same kernel on a stream of its own and holds twice as many
//           operations, so that it is at work until the chain is through. Every rank enqueues both in the
//           same order.
//   kernel  The loop's first samples are dropped. A sample spans `chain` operations, an even number unless
//           asked otherwise: see runtime/kernel_loop.hpp.
//
// CPU time: in a graph that of launching the chain, while the stream is held back; in eager mode that of a
// few calls after the samples, since to read the clock of a thread takes as long as half a call.
#include "cli/bench/place_cuda.hpp"

#include <cuda_runtime_api.h>

#include <atomic>
#include <chrono>
#include <vector>

#include "base/deadline.hpp"
#include "cli/bench/hold.hpp"
#include "probe/cuda_call.hpp"

namespace nearlight::bench {

namespace {

using HostMemory = probe::Owned<void*, cudaFreeHost>;

// Calls whose CPU time is taken together: few enough for a stream's queue, which a call waits for when it is
// full.
constexpr int kCpuCalls = 32;

// Polls, since cudaStreamSynchronize has no limit.
Status wait_for(cudaStream_t stream, const Limits& limits) {
  const Deadline deadline = Deadline::after(limits.work);
  for (std::uint32_t polls = 1;; ++polls) {
    const cudaError_t state = cudaStreamQuery(stream);
    if (state != cudaErrorNotReady) return probe::cuda_status("cudaStreamQuery", state);
    if (polls % 1024 == 0 && deadline.passed()) {
      return failure(Code::timeout, "a GPU's work did not end within %lld ms",
                     static_cast<long long>(limits.work.count()));
    }
  }
}

class EagerTimer final : public Timer {
 public:
  EagerTimer(const Work& work, int chain, cudaStream_t stream, const Limits& limits)
      : work_(work), chain_(chain), stream_(stream), limits_(limits) {}
  std::optional<double> cpu_us() const override { return cpu_us_; }

 private:
  Status take(Meeting& meeting, std::span<double> us) override {
    for (double& sample : us) {
      arrive();
      NL_TRY_ASSIGN(const std::uint64_t start_ns, meeting.align());
      for (int i = 0; i < chain_; ++i) NL_TRY(work_.contender.run(work_.operation, stream_));
      NL_TRY(wait_for(stream_, limits_));
      sample = static_cast<double>(now_ns() - start_ns) * 1e-3 / chain_;
    }
    NL_TRY(meeting.barrier());
    const std::uint64_t cpu_before_ns = thread_cpu_ns();
    for (int i = 0; i < kCpuCalls; ++i) NL_TRY(work_.contender.run(work_.operation, stream_));
    cpu_us_ = static_cast<double>(thread_cpu_ns() - cpu_before_ns) * 1e-3 / kCpuCalls;
    return wait_for(stream_, limits_);
  }

  Work work_;
  int chain_;
  cudaStream_t stream_;
  Limits limits_;
  std::optional<double> cpu_us_;
};

class GraphTimer final : public Timer {
 public:
  // `beside` on `second`, or null.
  static Result<std::unique_ptr<Timer>> create(const Work& work, const Work* beside, int chain, int device,
                                               cudaStream_t stream, cudaStream_t second,
                                               const Limits& limits) {
    std::unique_ptr<GraphTimer> timer(
        new GraphTimer(chain, stream, beside != nullptr ? second : nullptr, limits));
    // Once as it is: what an implementation sets up at its first operation of a size may be forbidden in a
    // capture.
    NL_TRY(work.contender.run(work.operation, stream));
    if (beside != nullptr) NL_TRY(beside->contender.run(beside->operation, second));
    NL_TRY(timer->wait_for_all());
    NL_TRY_ASSIGN(timer->first_, capture(work, 1, device, stream));
    NL_TRY_ASSIGN(timer->chained_, capture(work, chain, device, stream));
    if (beside != nullptr) {
      NL_TRY_ASSIGN(timer->beside_, capture(*beside, 2 * chain, device, second));
    }
    for (probe::Event* event : {&timer->begin_, &timer->end_}) {
      cudaEvent_t made = nullptr;
      NL_PROBE_CUDA(cudaEventCreate(&made));
      *event = probe::Event(made, device);
    }
    void* flag = nullptr;
    NL_PROBE_CUDA(cudaHostAlloc(&flag, sizeof(std::uint32_t), cudaHostAllocPortable | cudaHostAllocMapped));
    timer->flag_ = HostMemory(flag, device);
    *static_cast<std::uint32_t*>(flag) = 0;
    NL_TRY(timer->wait_for_all());
    return std::unique_ptr<Timer>(std::move(timer));
  }
  std::optional<double> cpu_us() const override { return cpu_us_; }

 private:
  // `second`: of the other job; null without one.
  GraphTimer(int chain, cudaStream_t stream, cudaStream_t second, const Limits& limits)
      : chain_(chain), stream_(stream), second_(second), limits_(limits) {}

  Status wait_for_all() {
    NL_TRY(wait_for(stream_, limits_));
    return second_ != nullptr ? wait_for(second_, limits_) : Status();
  }

  Status take(Meeting& meeting, std::span<double> us) override {
    auto* const flag = static_cast<std::uint32_t*>(flag_.get());
    const auto hold_ns = static_cast<std::uint64_t>(std::chrono::nanoseconds(limits_.hold).count());
    cpu_ns_ = 0;
    for (double& sample : us) {
      arrive();
      ++turn_;
      NL_TRY(enqueue_hold(flag, turn_, hold_ns, stream_));
      Status enqueued = second_ != nullptr ? enqueue_hold(flag, turn_, hold_ns, second_) : Status();
      if (enqueued.ok()) enqueued = enqueue();
      // A rank that could not enqueue lets its own stream go before it tells: its kernel would hold the GPU.
      Status all = enqueued.ok() ? meeting.barrier() : enqueued;
      std::atomic_ref(*flag).store(turn_, std::memory_order_relaxed);
      NL_TRY(all);
      NL_TRY(wait_for_all());
      float ms = 0;
      NL_PROBE_CUDA(cudaEventElapsedTime(&ms, begin_.get(), end_.get()));
      sample = static_cast<double>(ms) * 1e3 / chain_;
    }
    cpu_us_ = static_cast<double>(cpu_ns_) * 1e-3 / (static_cast<double>(us.size()) * chain_);
    return {};
  }

  Status enqueue() {
    NL_PROBE_CUDA(cudaGraphLaunch(first_.get(), stream_));
    NL_PROBE_CUDA(cudaEventRecord(begin_.get(), stream_));
    const std::uint64_t cpu_before_ns = thread_cpu_ns();
    NL_PROBE_CUDA(cudaGraphLaunch(chained_.get(), stream_));
    cpu_ns_ += thread_cpu_ns() - cpu_before_ns;
    NL_PROBE_CUDA(cudaEventRecord(end_.get(), stream_));
    if (second_ != nullptr) NL_PROBE_CUDA(cudaGraphLaunch(beside_.get(), second_));
    return {};
  }

  static Result<probe::GraphExec> capture(const Work& work, int chain, int device, cudaStream_t stream) {
    NL_PROBE_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    Status captured;
    for (int i = 0; i < chain && captured.ok(); ++i) {
      captured = work.contender.run(work.operation, stream);
    }
    cudaGraph_t made = nullptr;
    const Status ended = probe::cuda_status("cudaStreamEndCapture", cudaStreamEndCapture(stream, &made));
    const probe::Graph graph(made, device);
    NL_TRY(captured);
    NL_TRY(ended);
    cudaGraphExec_t instance = nullptr;
    NL_PROBE_CUDA(cudaGraphInstantiate(&instance, graph.get(), 0));
    probe::GraphExec exec(instance, device);
    // Now, not at the first launch: an upload must not wait for a rank that spins.
    NL_PROBE_CUDA(cudaGraphUpload(exec.get(), stream));
    return exec;
  }

  int chain_;
  cudaStream_t stream_, second_;
  Limits limits_;
  std::uint32_t turn_ = 0;
  std::uint64_t cpu_ns_ = 0;
  std::optional<double> cpu_us_;
  HostMemory flag_;
  probe::Event begin_, end_;
  probe::GraphExec first_, chained_, beside_;
};

class KernelTimer final : public Timer {
 public:
  KernelTimer(const Work& work, int chain, cudaStream_t stream)
      : work_(work), chain_(chain), stream_(stream) {}

 private:
  Status take(Meeting& meeting, std::span<double> us) override {
    arrive();
    NL_TRY(meeting.barrier());
    return work_.contender.run_loop(work_.operation, static_cast<std::uint32_t>(chain_), us, stream_);
  }

  Work work_;
  int chain_;
  cudaStream_t stream_;
};

class CudaPlace final : public Place {
 public:
  CudaPlace(int device, std::vector<probe::Stream> streams, const Limits& limits)
      : device_(device), streams_(std::move(streams)), limits_(limits) {}

  Result<char*> allocate(std::size_t bytes) override {
    void* memory = nullptr;
    NL_PROBE_CUDA(cudaMalloc(&memory, bytes));
    memory_.emplace_back(memory, device_);
    NL_PROBE_CUDA(cudaMemsetAsync(memory, 0, bytes, main()));
    NL_TRY(wait());
    return static_cast<char*>(memory);
  }
  Status write(char* to, std::span<const std::byte> from) override {
    NL_PROBE_CUDA(cudaMemcpyAsync(to, from.data(), from.size(), cudaMemcpyHostToDevice, main()));
    return wait();
  }
  Status read(std::span<std::byte> to, const char* from) override {
    NL_PROBE_CUDA(cudaMemcpyAsync(to.data(), from, to.size(), cudaMemcpyDeviceToHost, main()));
    return wait();
  }
  Status wait() override {
    for (const probe::Stream& stream : streams_) NL_TRY(wait_for(stream.get(), limits_));
    return {};
  }
  runtime::Stream stream(int job) const override { return streams_[static_cast<std::size_t>(job)].get(); }

  Result<std::unique_ptr<Timer>> prepare(const Work& work, const Work* beside, cli::Mode mode,
                                         int chain) override {
    if (beside != nullptr && (mode != cli::Mode::graph || streams_.size() < 2)) {
      return failure(Code::unsupported,
                     "two jobs at once on a GPU are measured in graphs only, not in mode %s",
                     cli::name_of(mode));
    }
    switch (mode) {
      case cli::Mode::kernel:
        return std::unique_ptr<Timer>(std::make_unique<KernelTimer>(work, chain, main()));
      case cli::Mode::graph:
        return GraphTimer::create(work, beside, chain, device_, main(), streams_.back().get(), limits_);
      case cli::Mode::eager:
        break;
    }
    return std::unique_ptr<Timer>(std::make_unique<EagerTimer>(work, chain, main(), limits_));
  }

 private:
  cudaStream_t main() const { return streams_.front().get(); }

  int device_;
  std::vector<probe::Stream> streams_;  // of each job
  Limits limits_;
  std::vector<probe::DeviceMemory> memory_;
};

}  // namespace

Result<std::unique_ptr<Place>> make_cuda_place(int device, std::vector<probe::Stream> streams,
                                               const Limits& limits) {
  if (streams.empty()) return failure(Code::internal_error, "a place without a stream");
  NL_PROBE_CUDA(cudaSetDevice(device));
  NL_TRY(load_hold_kernel());
  return std::unique_ptr<Place>(std::make_unique<CudaPlace>(device, std::move(streams), limits));
}

}  // namespace nearlight::bench
