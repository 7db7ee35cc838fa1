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
    if (blocks_ > 1) {
      if (threadIdx.x == 0) make_counters();
      arrive();
    }
  }

  // Two sets of slots, in turns: who writes one for the sum after the next has what all others sent for the
  // next, which they did when they had read it. Between blocks a sum travels with its own arrival: a
  // cluster's barrier would first wait for the stores and then go round.
  NL_FN float sum(float mine) {
    float* const set = slots() + turn_ % 2 * kSlots;
    mine = sum_of_lanes(mine, 32);
    const std::uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    if (blocks_ == 1) {
      if (lane == 0) set[warp] = mine;
      __syncthreads();
    } else {
      if (turn_ == 0) meet();
      if (lane < blocks_) send(lane, set + block_rank() * kWarps + warp, mine, turn_ % 2);
      if (threadIdx.x == 0) expect(turn_ % 2, blocks_ * (blockDim.x / 32) * std::uint32_t{sizeof(float)});
      receive(turn_ % 2, turn_ / 2 % 2);
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
  // [T1] The zeroed slots and the counters < arrive (release) pairs with meet (acquire) < the first of
  // others' stores.
  static NL_FN void arrive() { asm volatile("barrier.cluster.arrive.release;" ::: "memory"); }
  static NL_FN void meet() { asm volatile("barrier.cluster.wait.acquire;" ::: "memory"); }

  // Of the bytes that have come for a set.
  static NL_FN std::uint32_t counter(std::uint32_t set) {
    __shared__ std::uint64_t counters[2];
    return static_cast<std::uint32_t>(__cvta_generic_to_shared(counters + set));
  }
  static NL_FN void make_counters() {
    for (std::uint32_t set = 0; set < 2; ++set)
      asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(counter(set)) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  // [T2] send (its count is a release) pairs with receive (acquire) < the loads. What comes before expect()
  // counts as well: the set's turn is not over before its own block has said what it expects.
  static NL_FN void send(std::uint32_t block, float* own_slot, float value, std::uint32_t set) {
    const auto here = static_cast<std::uint32_t>(__cvta_generic_to_shared(own_slot));
    asm volatile(
        "{ .reg .b32 there, count; mapa.shared::cluster.u32 there, %0, %1; mapa.shared::cluster.u32 count, "
        "%3, %1;"
        " st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [there], %2, [count]; }" ::"r"(here),
        "r"(block), "r"(__float_as_uint(value)), "r"(counter(set))
        : "memory");
  }
  static NL_FN void expect(std::uint32_t set, std::uint32_t bytes) {
    asm volatile("mbarrier.arrive.expect_tx.relaxed.cta.shared::cta.b64 _, [%0], %1;" ::"r"(counter(set)),
                 "r"(bytes)
                 : "memory");
  }
  // All blocks send in every turn, whatever has failed, so it ends as a barrier of theirs would.
  static NL_FN void receive(std::uint32_t set, std::uint32_t phase) {
    std::uint32_t over;
    do {
      asm volatile(
          "{ .reg .pred over; mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 over, [%1], %2;"
          " selp.u32 %0, 1, 0, over; }"
          : "=r"(over)
          : "r"(counter(set)), "r"(phase)
          : "memory");
    } while (over == 0);
  }
#else
  // Nobody launches clusters here.
  static NL_FN std::uint32_t block_rank() { return 0; }
  static NL_FN void arrive() {}
  static NL_FN void meet() {}
  static NL_FN void make_counters() {}
  static NL_FN void send(std::uint32_t, float* own_slot, float value, std::uint32_t) { *own_slot = value; }
  static NL_FN void expect(std::uint32_t, std::uint32_t) {}
  static NL_FN void receive(std::uint32_t, std::uint32_t) { __syncthreads(); }
#endif

  std::uint32_t blocks_;
  std::uint32_t turn_ = 0;
};

}  // namespace nearlight::exec
