// The kernels of the GPU probe and how they are started. All end by themselves: every wait has a limit.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "probe/loops.hpp"
#include "probe/sol.hpp"

namespace nearlight::probe::gpu {

inline constexpr int kMaxSms = 1024;

enum class Outcome : std::uint32_t { not_run = 0, done = 1, timeout = 2 };

// What a kernel leaves behind, in device memory; zeroed before each.
struct Notes {
  std::uint32_t claimed;  // by the CTA that works
  Outcome outcome;
  std::uint32_t sm_seen[kMaxSms];
  std::uint64_t ns[kMaxLines];  // of the timed laps, by line
};

// The probed lines of one rank's part: first, first + spacing, ...
struct Lines {
  char* first;
  std::size_t spacing;
  int count;
};

// Loads all kernels on the current device. Loading one later would wait for a spinning kernel to end.
cudaError_t load_kernels();

// Each starts on the current device. `ctas` of those that pin: enough that every SM gets one; only one, on SM
// `sm`, works.
cudaError_t start_find_sms(Notes* notes, int ctas, cudaStream_t stream);
cudaError_t start_chase(Notes* notes, int ctas, int sm, Lines lines, Laps laps, cudaStream_t stream);
struct PingPongArgs {
  Lines mine;
  char* theirs;  // the first line of the other part, as addressed here
  bool first;
  std::uint32_t base;
  Laps laps;
  std::uint64_t timeout_ns;
  Arrival arrival;
};
cudaError_t start_ping_pong(Notes* notes, int ctas, int sm, const PingPongArgs& args, cudaStream_t stream);
// Stores `bytes` (a multiple of 16) into `to`, `ctas` CTAs of 512 threads.
cudaError_t start_stores(char* to, std::size_t bytes, int ctas, cudaStream_t stream);
// One thread: writes down when it started, then waits until `expected` such kernels have arrived at *arrived.
cudaError_t start_meeting(std::uint64_t* arrived, std::uint32_t expected, std::uint64_t limit_ns,
                          std::uint64_t* started_ns, cudaStream_t stream);
cudaError_t start_empty(cudaStream_t stream);
// With programmatic dependent launch, as a kernel that depends on the one before must use it.
cudaError_t start_empty_dependent(cudaStream_t stream);

}  // namespace nearlight::probe::gpu
