// A team of one thread block, or of the blocks of a cluster (sm_90), which reach each other's shared memory.
#pragma once

#include <cstdint>

#include <nearlight/detail/exec/fn.hpp>
#include "exec/team.hpp"

namespace nearlight::exec {

// Blocks of a cluster, at most: what every GPU that has clusters takes.
inline constexpr std::uint32_t kMostTeamBlocks = 8;

// Blocks of whole warps, at most 16 of them, all blocks alike. `blocks`: 1, 2, 4 or 8; more than 1 only where
// the kernel was launched in clusters of so many.
class CtaTeam {
 public:
  NL_FN explicit CtaTeam(std::uint32_t blocks) : blocks_(blocks) {}

  NL_FN void begin() {
    // Warps that there are not add nothing. No warp writes these, so nothing has to be ordered but by the
    // meeting of the first sum.
    for (std::uint32_t slot = threadIdx.x; slot < 2 * kSlots; slot += blockDim.x) {
      if (slot % kWarps >= blockDim.x / 32) slots()[slot] = 0;
    }
    // A block's shared memory can be reached once it has started: it says so here, and sum() waits for all.
    if (blocks_ > 1) arrive();
  }

  // Two sets of slots, in turns: who writes one for the sum after the next has met, in the next, all those
  // that still read it.
  NL_FN float sum(float mine) {
    float* const set = slots() + turn_ % 2 * kSlots;
    mine = sum_of_lanes(mine, 32);
    const std::uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    if (blocks_ == 1) {
      if (lane == 0) set[warp] = mine;
      __syncthreads();
    } else {
      if (turn_ == 0) meet();
      if (lane < blocks_) store_in(lane, set + block_rank() * kWarps + warp, mine);
      arrive();
      meet();
    }
    ++turn_;
    // Four slots a lane, as many lanes as that takes; the others do the same again.
    const std::uint32_t lanes = blocks_ * kWarps / 4;
    const float4 four = reinterpret_cast<const float4*>(set)[lane % lanes];
    return sum_of_lanes((four.x + four.y) + (four.z + four.w), lanes);
  }

 private:
  static constexpr std::uint32_t kWarps = 16, kSlots = kMostTeamBlocks * kWarps;

  static NL_FN float* slots() {
    __shared__ float4 memory[2 * kSlots / 4];
    return reinterpret_cast<float*>(memory);
  }
  // Over runs of `lanes` lanes, a power of two. Both of a pair add the same two: all have the same bits.
  static NL_FN float sum_of_lanes(float mine, std::uint32_t lanes) {
    NL_UNROLL
    for (std::uint32_t step = 16; step > 0; step /= 2) {
      if (step < lanes) mine += __shfl_xor_sync(0xffffffffu, mine, static_cast<int>(step));
    }
    return mine;
  }

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  static NL_FN std::uint32_t block_rank() {
    std::uint32_t rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
  }
  // [C1] The stores into other blocks' slots < arrive (release) pairs with meet (acquire) < the loads.
  static NL_FN void arrive() { asm volatile("barrier.cluster.arrive.release;" ::: "memory"); }
  static NL_FN void meet() { asm volatile("barrier.cluster.wait.acquire;" ::: "memory"); }
  static NL_FN void store_in(std::uint32_t block, float* own_slot, float value) {
    const auto here = static_cast<std::uint32_t>(__cvta_generic_to_shared(own_slot));
    asm volatile(
        "{ .reg .b32 there; mapa.shared::cluster.u32 there, %0, %1; st.shared::cluster.f32 [there], %2; }" ::
            "r"(here),
        "r"(block), "f"(value)
        : "memory");
  }
#else
  // Nobody launches clusters here.
  static NL_FN std::uint32_t block_rank() { return 0; }
  static NL_FN void arrive() {}
  static NL_FN void meet() { __syncthreads(); }
  static NL_FN void store_in(std::uint32_t, float* own_slot, float value) { *own_slot = value; }
#endif

  std::uint32_t blocks_;
  std::uint32_t turn_ = 0;
};

}  // namespace nearlight::exec
