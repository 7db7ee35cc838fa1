// Which of its kernels a message can take, and how many threads a CTA of that one may have. In one place, as
// the route tells the threads and the launcher gives them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "algorithm/kinds.hpp"

namespace nearlight::algorithm {

// A message and how it is cut; the same on all ranks.
struct Cut {
  DataType type;
  ReduceOp op;
  Algorithm algorithm;
  Protocol protocol;
  std::uint64_t bytes;
  std::uint32_t grid, threads, held;  // CTAs; threads of one; packs or packets of a thread
  std::uint32_t packets;              // of a region
};

struct Fit {
  bool fast;   // the kernel of one round, no thread idle
  bool whole;  // the sentinel's, of any number of rounds of whole warps
};

// `places`: the addresses of the two buffers, or-ed; 0: aligned to whatever. They are one rank's own: a rank
// may take another kernel than the others, for what it does to its own buffers.
constexpr Fit fit_of(const Cut& cut, std::uint64_t places) {
  if (cut.protocol == Protocol::ll128) return {false, false};              // one kernel, of any message
  const std::uint64_t unit = cut.protocol == Protocol::sentinel ? 16 : 8;  // bytes; a thread takes one
  const std::uint64_t units = cut.bytes / unit;
  // The fast kernel has no idle CTA and no idle thread: those of the last warp double its last pack, and
  // there is no warp after it. With several packets held no thread is without one of them.
  const std::uint64_t before_last_cta = std::uint64_t{cut.grid - 1} * cut.threads;
  const bool none_idle = units > before_last_cta && units - before_last_cta <= cut.threads &&
                         units - before_last_cta > cut.threads - 32;
  const bool has_places = cut.protocol != Protocol::sentinel || cut.threads * cut.held <= cut.packets;
  const bool all_full = units == std::uint64_t{cut.grid} * cut.threads * cut.held;
  const bool wide = cut.threads == kMaxThreads;
  const bool even = (cut.bytes | places) % unit == 0;
  return {has_places && even && (cut.held == 1 ? none_idle : all_full && wide),
          wide && even && units % 32 == 0 && cut.packets % 32 == 0};
}

// Threads of a CTA that run. With many CTAs those of the kernel of any message, which have more registers,
// get fewer, so that two fit an SM as two of the others do.
constexpr std::uint32_t threads_that_run(const Cut& cut, const Fit& fit) {
  const bool few_registers =
      cut.op == ReduceOp::sum && has_own_code(cut.type, cut.op) && (fit.fast || fit.whole);
  // Only the sentinel's one-shot is cut by what a CTA would hold, whatever its threads.
  const bool cut_by_span = cut.protocol == Protocol::sentinel && cut.algorithm == Algorithm::one_shot;
  const std::uint32_t most =
      cut_by_span && !few_registers && cut.grid > kFewCtas ? kSharedSmThreads : kMaxThreads;
  return cut.threads < most ? cut.threads : most;
}

}  // namespace nearlight::algorithm
