// Some whole warps of a block, which meet without the others.
#pragma once

#include <cstdint>

#include <nearlight/detail/exec/fn.hpp>

namespace nearlight::exec {

inline constexpr int kMostSpans = 15;  // of a block: one of its 16 barriers is the whole block's

// The `threads` threads from `first` on, both multiples of 32, which meet at the barrier `index` + 1. All of
// them make the same calls; the threads of a warp need not be together.
class SpanCoop {
 public:
  NL_FN SpanCoop(std::uint32_t first, std::uint32_t threads, std::uint32_t index)
      : first_(first), threads_(threads), barrier_(index + 1) {}

  NL_FN int thread_rank() const { return static_cast<int>(threadIdx.x - first_); }
  NL_FN int size() const { return static_cast<int>(threads_); }
  NL_FN void sync() { asm volatile("barrier.sync %0, %1;" ::"r"(barrier_), "r"(threads_) : "memory"); }
  NL_FN bool sync_any(bool mine) {
    std::uint32_t any;
    asm volatile(
        "{\n\t.reg .pred mine, any;\n\t"
        "setp.ne.u32 mine, %1, 0;\n\t"
        "barrier.red.or.pred any, %2, %3, mine;\n\t"
        "selp.u32 %0, 1, 0, any;\n\t}"
        : "=r"(any)
        : "r"(mine ? 1u : 0u), "r"(barrier_), "r"(threads_)
        : "memory");
    return any != 0;
  }

  // Which of the block's spans of that width the calling thread belongs to.
  static NL_FN std::uint32_t index_of(std::uint32_t threads) { return threadIdx.x / threads; }

 private:
  std::uint32_t first_, threads_, barrier_;
};

}  // namespace nearlight::exec
