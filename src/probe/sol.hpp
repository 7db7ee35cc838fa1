// What this machine cannot do faster: the round trip and the one way that every collective consists of, the
// store bandwidth, and what launching costs. `sol_us` (speed of light) = L2 round trip + one way, the least
// an AllReduce in a kernel can take.
//
// All figures are taken with the accesses of exec/, 4 bytes wide, relaxed, system scope, on lines of a
// symmetric heap.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "base/status.hpp"

namespace nearlight::probe {

inline constexpr int kDefaultLines = 64;
inline constexpr int kMaxLines = 4096;
inline constexpr std::size_t kLineStride = 128;  // bytes from one probed line to the next

// One figure at one place, over all lines.
struct Spread {
  std::string place;  // for a person: "GPU 0 SM 66", "GPU 0 -> GPU 1, SM 0", "core 0 -> core 1"
  double min_us = 0;
  double p50_us = 0;
  double max_us = 0;
  int lines = 0;
};

struct SolReport {
  std::string backend;  // "gpu" (two devices), "gpu_single" (two streams of one device), "cpu"
  int lines = 0;

  // By place: device or core and SM; one way and sol by direction too.
  std::vector<Spread> l2rtt;        // dependent loads of one local line, each waiting for the one before
  std::vector<Spread> one_way;      // a store, until the other side's polling load sees it: half a ping-pong
  std::vector<Spread> sol;          // L2 round trip at the sender + one way, line by line
  std::vector<Spread> remote_load;  // dependent loads of a line of the other side

  // Medians over all lines and places.
  double l2rtt_us = 0;
  double one_way_us = 0;
  double sol_us = 0;
  std::optional<double> remote_load_us;  // of a GPU

  // One way with three kinds of poll, one after the other at one place, medians over the lines; of a GPU.
  // What a protocol pays that waits for a flag and then reads what the flag is about.
  std::optional<double> arrival_relaxed_us;  // relaxed polls and nothing behind them
  std::optional<double> arrival_acquire_us;  // every poll acquires
  std::optional<double> arrival_fence_us;    // relaxed polls and one fence, system scope

  double store_gbs =
      0;  // 1e9 bytes per second and direction, stores into the other side's part, both directions busy

  // Absent on a CPU.
  std::optional<double> launch_floor_us;      // an empty kernel in a chain of a CUDA graph
  std::optional<double> launch_floor_pdl_us;  // the same with programmatic dependent launch
  std::optional<double>
      eager_floor_us;  // an empty kernel, from the call to its end seen by cudaStreamSynchronize

  double took_ms = 0;
};

// One rank's end of the probe: a device, and the symmetric heap as addressed there (memory::HeapView's
// fields).
struct GpuEnd {
  int device = 0;
  char* base = nullptr;    // of rank 0's part
  std::size_t stride = 0;  // bytes from one rank's part to the next
  int rank = 0;            // whose part is local to `device`
};

struct GpuProbeTarget {
  GpuEnd ends[2];          // different ranks, of two devices or of one
  std::size_t offset = 0;  // where in every part the probe may write, a multiple of kLineStride
  std::size_t bytes = 0;   // how much there: at least gpu_probe_bytes(lines)
  int lines = kDefaultLines;
  std::chrono::milliseconds wait_limit{2000};  // of one wait inside a kernel
};

// Bytes of each part that a probe of that many lines uses.
std::size_t gpu_probe_bytes(int lines = kDefaultLines);

// Drives both ends from this thread; both parts must be free of other use meanwhile. The bytes used are zero
// afterwards. Below 3 s on current GPUs. The current device is the same afterwards. Errors: invalid_argument
// (names the field), cuda_error, timeout (a side never saw the other's store), unsupported (a build without
// CUDA).
Result<SolReport> measure_gpu(const GpuProbeTarget& target);

struct CpuProbeTarget {
  // Memory of at least cpu_probe_bytes(lines), aligned to kLineStride, which the probe may write: the parts
  // of two ranks of a shm heap, or any memory. Zero afterwards.
  char* part[2] = {nullptr, nullptr};
  std::size_t bytes = 0;  // of each part
  int lines = kDefaultLines;
  std::chrono::milliseconds wait_limit{2000};  // of one wait
};

std::size_t cpu_probe_bytes(int lines = kDefaultLines);

// Two threads of this process, on two cores if there are two. `l2rtt` is a dependent load of a line in the
// core's own cache, `one_way` a line moved between cores, `store_gbs` copying into the other's part. Errors:
// invalid_argument (names the field), timeout, system_error (no thread).
Result<SolReport> measure_cpu(const CpuProbeTarget& target);

}  // namespace nearlight::probe
