// Groups of fewer threads than a block: one thread, one warp.
#pragma once

#include <nearlight/detail/exec/fn.hpp>

namespace nearlight::exec {

struct ThreadCoop {
  NL_FN int thread_rank() const { return 0; }
  static NL_FN constexpr int size() { return 1; }
  NL_FN void sync() {}
  NL_FN bool sync_any(bool mine) { return mine; }
};

// The calling thread's warp, all 32 threads of it.
struct WarpCoop {
  NL_FN int thread_rank() const { return static_cast<int>(threadIdx.x % 32); }
  static NL_FN constexpr int size() { return 32; }
  NL_FN void sync() { __syncwarp(); }
  NL_FN bool sync_any(bool mine) { return __any_sync(0xffffffffu, mine) != 0; }
};

}  // namespace nearlight::exec
