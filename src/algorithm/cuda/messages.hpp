// Launching the kernel of sends and receives that go together. Compiles without nvcc.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "algorithm/cuda/all_reduce.hpp"
#include "algorithm/pipe_lane.hpp"
#include "base/status.hpp"

namespace nearlight::trace {
struct TurnTimes;
}

namespace nearlight::algorithm::cuda {

// PipeState<exec::CudaSpace>.
struct alignas(16) PipeStateWords {
  std::uint32_t sent[kCarriers], received[kCarriers];
};

// What they all share, by value: a kernel's parameter.
struct MessagesHead {
  // As for an AllReduce, of what is there for every call. `regions` and `region_bytes` are those of the
  // lanes of pipes; the state of lane i is that of region i.
  AllReduceArgs all;
  PipeStateWords* ends;  // [lane][peer]
  PipeQueue queues[kMostQueues];
  std::uint32_t queue_count;
  std::uint32_t told;   // 1: the ranks compare their messages
  std::uint32_t width;  // threads a queue; launch_messages() fills it in
  // Read by traced kernels alone: rings of trace::kTurnLinesOnGpu by trace::turn_ring_of(). Null: not traced.
  trace::TurnTimes* turns;
};

// Messages of one group: a kernel's parameter holds so many.
inline constexpr std::uint32_t kMostMessages = 1000;
// Those that a launch with a small parameter takes; no more of them are traced.
inline constexpr std::uint32_t kFewMessages = 64;

template <std::uint32_t kMost>
struct MessagesArgs {
  MessagesHead head;
  Message messages[kMost];
};

// One kernel for all of them, each CTA of which works on all queues at once. `lanes`: CTAs. Enqueued with
// programmatic dependent launch; nothing is allocated. Code::unsupported: more than kMostMessages.
Status launch_messages(const MessagesHead& head, const Message* messages, std::uint32_t count,
                       std::uint32_t lanes, cudaStream_t stream);

// As preload(), see all_reduce.hpp.
Status preload_messages();
// The one that traces, which it leaves out.
Status preload_traced_messages();

}  // namespace nearlight::algorithm::cuda
