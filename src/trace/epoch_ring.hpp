// When the steps of a region's epochs were: one line an epoch in a ring that its group alone writes.
#pragma once

#include <cstddef>
#include <cstdint>

#include <nearlight/detail/exec/fn.hpp>

namespace nearlight::trace {

// start: the call has its session (an epoch that is not a call's first has none of its own); publish: just
// before what others wait for is sent; published: after it; arrived: all others' has come (where a thread has
// several parts to wait for: its first); done: this epoch's work is over. On a GPU these are the times of one
// thread of the CTA.
enum class Event : std::uint32_t { start = 0, publish = 1, published = 2, arrived = 3, done = 4 };
inline constexpr int kEvents = 5;

// Times of the writer's clock, ns. A step that did not happen has an older epoch's time, or 0.
struct alignas(64) EpochTimes {
  std::uint32_t epoch;  // 0: never used
  std::uint32_t collective;
  std::uint64_t at_ns[kEvents];
  std::uint64_t reserved[2];

  NL_HOST_FN std::uint64_t at(Event event) const { return at_ns[static_cast<std::uint32_t>(event)]; }
};
static_assert(sizeof(EpochTimes) == 64);

// Lines of a region's ring, the oldest of which is overwritten; powers of two.
inline constexpr std::uint32_t kLinesOnCpu = 1u << 16;  // 4 MiB
inline constexpr std::uint32_t kLinesOnGpu = 1u << 10;  // 64 KiB

}  // namespace nearlight::trace
