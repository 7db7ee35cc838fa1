#include "probe/concurrent_streams.hpp"

#include <algorithm>
#include <cstdint>

#include "probe/gpu_kernels.hpp"

namespace nearlight::probe {

namespace {

constexpr int kTrials = 16;

Result<Stream> make_stream(int device) {
  cudaStream_t stream = nullptr;
  NL_PROBE_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  return Stream(stream, device);
}

// When the kernel of each stream started, ns of the GPU's clock. Each waits for the others, up to the limit.
Result<std::vector<std::uint64_t>> try_out(const std::vector<Stream>& streams, std::uint64_t* memory,
                                           std::uint64_t limit_ns) {
  const std::size_t words = streams.size() + 1;
  NL_PROBE_CUDA(cudaMemset(memory, 0, words * sizeof *memory));
  NL_PROBE_CUDA(cudaStreamSynchronize(cudaStreamLegacy));
  for (std::size_t i = 0; i < streams.size(); ++i) {
    NL_PROBE_CUDA(gpu::start_meeting(memory, static_cast<std::uint32_t>(streams.size()), limit_ns,
                                     memory + 1 + i, streams[i].get()));
  }
  for (const Stream& stream : streams) NL_PROBE_CUDA(cudaStreamSynchronize(stream.get()));
  std::vector<std::uint64_t> started(streams.size());
  NL_PROBE_CUDA(
      cudaMemcpy(started.data(), memory + 1, started.size() * sizeof started[0], cudaMemcpyDeviceToHost));
  return started;
}

}  // namespace

Result<std::vector<Stream>> concurrent_streams(int device, int count,
                                               std::chrono::nanoseconds meeting_limit) {
  const auto limit_ns = static_cast<std::uint64_t>(meeting_limit.count());
  const DeviceKeeper keeper;
  NL_PROBE_CUDA(cudaSetDevice(device));
  NL_PROBE_CUDA(gpu::load_kernels());
  void* memory = nullptr;
  NL_PROBE_CUDA(cudaMalloc(&memory, (static_cast<std::size_t>(count) + 1) * sizeof(std::uint64_t)));
  const DeviceMemory owned(memory, device);
  std::vector<Stream> streams;
  for (int i = 0; i < count; ++i) {
    NL_TRY_ASSIGN(auto stream, make_stream(device));
    streams.push_back(std::move(stream));
  }
  // Those that came late stay alive until the end: a new stream then gets another queue.
  std::vector<Stream> late;
  for (int trial = 0; trial < kTrials; ++trial) {
    NL_TRY_ASSIGN(const auto started, try_out(streams, static_cast<std::uint64_t*>(memory), limit_ns));
    const std::uint64_t first = *std::min_element(started.begin(), started.end());
    bool all = true;
    for (std::size_t i = 0; i < streams.size(); ++i) {
      if (started[i] - first < limit_ns / 2) continue;
      all = false;
      NL_TRY_ASSIGN(auto stream, make_stream(device));
      std::swap(streams[i], stream);
      late.push_back(std::move(stream));
    }
    if (all) return streams;
  }
  return failure(
      Code::unsupported,
      "no %d streams of device %d run at the same time: is CUDA_DEVICE_MAX_CONNECTIONS at least %d?", count,
      device, count + 1);
}

}  // namespace nearlight::probe
