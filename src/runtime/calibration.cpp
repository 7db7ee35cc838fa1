#include "runtime/calibration.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <memory>
#include <utility>
#include <vector>

#include "algorithm/cuda/clock.hpp"
#include "base/fault_point.hpp"
#include "probe/cuda_call.hpp"
#include "runtime/cuda_call.hpp"
#include "runtime/cuda_control.hpp"
#include "runtime/device_memory.hpp"

namespace nearlight::runtime {

namespace {

constexpr std::uint32_t kMostCandidates = 24;
constexpr int kChain = 16;   // operations with one first region, one after the other
constexpr int kReplays = 4;  // of the whole graph
constexpr std::size_t kBufferBytes = 16384;

// One stretch of the graph: operations of one kind from one first region on.
struct Stretch {
  std::size_t kind;
  std::uint32_t first;
};

std::vector<Stretch> stretches_of(const algorithm::cuda::AllReduceArgs& args, std::uint32_t regions) {
  std::vector<Stretch> all;
  for (std::size_t kind = 0; kind < route::kSlotKindCount; ++kind) {
    const route::SlotKind& what = route::kSlotKinds[kind];
    const std::uint32_t slots = what.protocol == algorithm::Protocol::ll ? args.slots : args.packets;
    if (what.threads > slots) continue;
    for (const std::uint32_t first : route::candidates(regions, what.grid, kMostCandidates))
      all.push_back({kind, first});
  }
  return all;
}

Status enqueue_operation(const algorithm::cuda::AllReduceArgs& args, const Stretch& stretch,
                         cudaStream_t stream) {
  const route::SlotKind& what = route::kSlotKinds[stretch.kind];
  algorithm::cuda::AllReduceArgs here = args;
  here.count = what.bytes / sizeof(float);
  algorithm::cuda::LaunchShape shape{
      DataType::f32, ReduceOp::sum, algorithm::Algorithm::one_shot, what.protocol, 1,
      what.grid,     what.threads};
  shape.first_region = stretch.first;
  return algorithm::cuda::launch(here, shape, stream);
}

Status enqueue_all(const algorithm::cuda::AllReduceArgs& args, const std::vector<Stretch>& stretches,
                   std::uint64_t* clocks, cudaStream_t stream) {
  // The ranks meet in one that is not timed.
  NL_TRY(enqueue_operation(args, stretches[0], stream));
  for (const Stretch& stretch : stretches) {
    NL_TRY(algorithm::cuda::launch_clock(clocks++, stream));
    for (int i = 0; i < kChain; ++i) NL_TRY(enqueue_operation(args, stretch, stream));
  }
  return algorithm::cuda::launch_clock(clocks, stream);
}

Result<probe::GraphExec> capture(const algorithm::cuda::AllReduceArgs& args,
                                 const std::vector<Stretch>& stretches, std::uint64_t* clocks, int device,
                                 cudaStream_t stream) {
  NL_TRY_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  const Status captured = enqueue_all(args, stretches, clocks, stream);
  cudaGraph_t made = nullptr;
  const Status ended = cuda_status("cudaStreamEndCapture", cudaStreamEndCapture(stream, &made));
  const probe::Graph graph(made, device);
  NL_TRY(captured);
  NL_TRY(ended);
  cudaGraphExec_t instance = nullptr;
  NL_TRY_CUDA(cudaGraphInstantiate(&instance, graph.get(), 0));
  probe::GraphExec exec(instance, device);
  NL_TRY_CUDA(cudaGraphUpload(exec.get(), stream));
  NL_TRY_CUDA(cudaStreamSynchronize(stream));
  return exec;
}

// Everything of one rank.
class Bench {
 public:
  Status prepare(int device, algorithm::cuda::AllReduceArgs args, std::uint32_t regions) {
    NL_TRY(fault_points::pass(fault_points::kCudaCalibrate));
    stretches_ = stretches_of(args, regions);
    if (stretches_.empty()) return {};
    cudaStream_t made = nullptr;
    NL_TRY_CUDA(cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking));
    stream_ = probe::Stream(made, device);
    // Words of its own: what goes wrong here is not the communicator's.
    NL_TRY_ASSIGN(control_, CudaControl::create(device, {.regions = regions}, 0));
    clock_bytes_ = (stretches_.size() + 1) * sizeof(std::uint64_t);
    NL_TRY(memory_.allocate(2 * kBufferBytes + clock_bytes_));
    NL_TRY_CUDA(cudaMemset(memory_.get(), 0, 2 * kBufferBytes + clock_bytes_));
    NL_TRY_CUDA(cudaStreamSynchronize(cudaStreamLegacy));
    auto* const bytes = static_cast<char*>(memory_.get());
    clocks_ = reinterpret_cast<std::uint64_t*>(bytes + 2 * kBufferBytes);
    control_->name_in(args);
    args.timeout_ns = std::uint64_t{kCalibrationMs} * 1'000'000;
    args.send = bytes;
    args.recv = bytes + kBufferBytes;
    NL_TRY_ASSIGN(graph_, capture(args, stretches_, clocks_, device, stream_.get()));
    return {};
  }

  // Runs it. `us`: an operation's time in each stretch; empty when it did not end in time.
  Status run(std::vector<float>& us) {
    const Deadline deadline = Deadline::after(std::chrono::milliseconds(kCalibrationMs));
    std::vector<std::uint64_t> clocks(stretches_.size() + 1);
    std::vector<float> sum(stretches_.size(), 0), most(stretches_.size(), 0);
    for (int replay = 0; replay < kReplays; ++replay) {
      NL_TRY_CUDA(cudaGraphLaunch(graph_.get(), stream_.get()));
      NL_TRY_CUDA(
          cudaMemcpyAsync(clocks.data(), clocks_, clock_bytes_, cudaMemcpyDeviceToHost, stream_.get()));
      NL_TRY_ASSIGN(const bool in_time, wait(deadline));
      if (!in_time || control_->has_fault()) return {};
      for (std::size_t i = 0; i < stretches_.size(); ++i) {
        const float time = static_cast<float>(clocks[i + 1] - clocks[i]) * 1e-3f / kChain;
        sum[i] += time;
        most[i] = std::max(most[i], time);
      }
    }
    // The mean without the worst: a tick of the clock is a good part of what they differ by.
    us.resize(stretches_.size());
    for (std::size_t i = 0; i < us.size(); ++i) us[i] = (sum[i] - most[i]) / (kReplays - 1);
    return {};
  }

  const std::vector<Stretch>& stretches() const { return stretches_; }

 private:
  // False: too late, and what was still running has been told to end and has ended.
  Result<bool> wait(Deadline deadline) {
    bool in_time = true;
    for (;;) {
      const cudaError_t state = cudaStreamQuery(stream_.get());
      if (state == cudaSuccess) return in_time;
      if (state != cudaErrorNotReady) return cuda_status("cudaStreamQuery", state);
      if (in_time && deadline.passed()) {
        // Every kernel sees it within its first polls.
        control_->set_abort();
        in_time = false;
      }
    }
  }

  std::vector<Stretch> stretches_;
  probe::Stream stream_;
  std::shared_ptr<CudaControl> control_;
  DeviceMemory memory_;
  std::uint64_t* clocks_ = nullptr;
  std::size_t clock_bytes_ = 0;
  probe::GraphExec graph_;
};

}  // namespace

Result<route::Placement> calibrate(Exchange& exchange, int device, const algorithm::cuda::AllReduceArgs& args,
                                   std::uint32_t regions, Deadline deadline) {
  Bench bench;
  // Nobody launches before all have allocated: an allocation may wait for kernels that run.
  NL_TRY(agree(exchange, bench.prepare(device, args, regions), deadline));
  if (bench.stretches().empty()) return route::Placement("the regions have no room for it");
  std::vector<float> us;
  NL_TRY(agree(exchange, bench.run(us), deadline));

  // The slowest rank's time counts, and all must come to the same.
  constexpr std::size_t kMost = kMostCandidates * route::kSlotKindCount;
  std::array<float, kMost> mine{};
  const std::size_t count = bench.stretches().size();
  std::copy(us.begin(), us.end(), mine.begin());  // all 0 where there are none
  NL_TRY_ASSIGN(const auto all, gather_values(exchange, mine, deadline));
  std::vector<float> slowest(count, 0);
  for (const auto& rank : all) {
    if (rank[0] == 0) return route::Placement("a rank came too late");
    for (std::size_t i = 0; i < count; ++i) slowest[i] = std::max(slowest[i], rank[i]);
  }
  route::Placement placement;
  for (std::size_t begin = 0, end = 0; begin < count; begin = end) {
    std::vector<std::uint32_t> tried;
    const std::size_t kind = bench.stretches()[begin].kind;
    for (; end < count && bench.stretches()[end].kind == kind; ++end)
      tried.push_back(bench.stretches()[end].first);
    placement.enter(kind, tried, std::span(slowest).subspan(begin, end - begin));
  }
  return placement;
}

}  // namespace nearlight::runtime
