// Launching the one-shot AllReduce kernels. Compiles without nvcc; the kernels are in the .cu files beside
// it.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include <nearlight/detail/exec/fn.hpp>
#include "algorithm/kinds.hpp"
#include "base/status.hpp"
#include "base/types.hpp"

namespace nearlight::protocol {
struct FaultRecord;
}
namespace nearlight::trace {
struct EpochTimes;
}

namespace nearlight::algorithm::cuda {

// 16 bytes a region: epoch, failed, two reserved words (protocol::RegionState<exec::CudaSpace>).
struct RegionStateWords {
  std::uint32_t epoch, failed, reserved[2];
};

// What a kernel gets as its one parameter. Pointers are device addresses.
struct AllReduceArgs {
  char* regions;             // rank 0's first region; rank p's lies p * stride further
  std::size_t stride;        // bytes
  std::size_t region_bytes;  // from one region to the next
  std::int32_t rank, nranks;
  std::uint32_t slots, cells, packets, wide, sums;  // see protocol::RegionLayout
  std::uint32_t first_slot;                         // LL: where in each region the message's slots begin
  std::uint32_t first_region;                       // the one that `regions` points to; launch() fills it in
  RegionStateWords* states;                         // one a region
  std::uint32_t* abort;                             // host-visible, see protocol::Control
  std::uint32_t* claim;
  std::uint32_t* valid;           // host-visible
  protocol::FaultRecord* record;  // host-visible
  std::uint64_t timeout_ns;
  std::uint32_t collective;
  std::uint32_t late;  // 1: the kernel after is not let in before this one's end (Options::early_launch)
  std::uint32_t delay_point;  // test hook; only read by the delayed kernels
  std::uint64_t delay_ns;
  const void* send;
  void* recv;
  std::uint64_t count;  // elements
  std::uint32_t held;   // sentinel: packets that a CTA of this shape holds; launch() fills it in
  // Loop kernels only: `samples` times `chain` operations, and where each CTA's clocks go:
  // [cta][loop_clocks(samples)].
  std::uint32_t samples, chain;
  std::uint64_t* clocks;
  // Loop kernels only, with `pinned` non-zero: one CTA works, on the SM of index `sm`; the first to take
  // *taken (zeroed).
  std::uint32_t pinned, sm;
  std::uint32_t* taken;
  // Only read by the kernels that know their operator at run time. `factor`: the bits of this rank's factor
  // of a pre-multiplied sum.
  ReduceOp op;
  std::uint64_t factor;
  trace::EpochTimes* trace;  // traced kernels only: trace::kLinesOnGpu a region, from region 0 on
};

// A CTA of a loop kernel writes its SM's cycle counter before the first sample and after each, then the time
// in ns at the start and at the end.
NL_HOST_FN constexpr std::size_t loop_clocks(std::uint32_t samples) { return std::size_t{samples} + 3; }

using Kernel = void (*)(const AllReduceArgs);
struct Pick;  // which kernel; see all_reduce_kernels.cuh
// Null: there is none.
using PickKernel = Kernel (*)(DataType type, const Pick& pick);

// How a kernel is chosen and launched.
struct LaunchShape {
  DataType type;
  ReduceOp op;
  Algorithm algorithm;
  Protocol protocol;
  std::uint32_t held;     // 1, 2 or 4 packs of LL (at most algorithm::max_held(nranks)) or packets of the
                          // sentinel a thread
  std::uint32_t grid;     // CTAs, at most the number of regions
  std::uint32_t threads;  // that the message is cut by: a multiple of 32, at most kMaxThreads; with LL
                          // threads * held <= slots. As many run, or as fit (algorithm/fit.hpp)
  bool loop = false;      // samples * chain operations in one kernel: has_own_code() only
  bool pinned = false;    // loop only: `grid` is 1, and the CTA is the one that lands on the wanted SM
  bool delayed = false;   // with test delays: f32 sum only
  bool traced = false;    // writes times into args.trace where is_traced(); else as without
  std::uint32_t first_region = 0;  // CTA 0's; the others' follow it
  // Loop only: the benchmark's own kernels in place of the library's (runtime/instead.hpp).
  PickKernel loops = nullptr;
};

// Enqueues one kernel with programmatic dependent launch; nothing is allocated, nothing else is called.
Status launch(const AllReduceArgs& args, const LaunchShape& shape, cudaStream_t stream);
// Loads that kernel on the current device, where preload() does not: one of shape.loops.
Status load(const AllReduceArgs& args, const LaunchShape& shape);

// The pre-multiplied sum of a single rank: recv[i] = factor * send[i]. Of `args` the buffers, the count and
// the factor are read. `max_ctas`: 0 for no limit of the caller's.
Status launch_alone(const AllReduceArgs& args, DataType type, std::uint32_t max_ctas, cudaStream_t stream);

// Loads every kernel on the current device: lazy loading would wait for a kernel that waits for this launch.
Status preload();
// Those that trace, which preload() leaves out.
Status preload_traced();

}  // namespace nearlight::algorithm::cuda
