// The GPU as an execution space: PTX for sm_70 and later; 16-byte vector accesses, system scope, relaxed
// unless named otherwise.
//
// PTX promises no atomicity beyond 8 bytes, so a line carries its flag in each 8-byte half.
#pragma once

#include <cstdint>

#include <nearlight/detail/exec/bits.hpp>
#include <nearlight/detail/exec/concepts.hpp>
#include <nearlight/detail/exec/fn.hpp>
#include <nearlight/detail/exec/small_float.hpp>

// An access that asks L2 to keep its line before others: between two operations of a model's step its weights
// stream through L2, and what a small operation touches would have to come back from memory.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
#define NL_KEPT(access, operands, policy) access ".L2::cache_hint" operands ", " policy ";"
#else
#define NL_KEPT(access, operands, policy) access operands ";"
#endif

namespace nearlight::exec {

struct CudaSpace {
  struct alignas(16) Line {
    std::uint32_t word[4];  // payload 0, flag, payload 1, flag
  };
  using Word = std::uint32_t;
  using Cell = Vec;
  using Packet = Vec;
  // 128 bytes, 16 by each of 8 threads; a warp has four of them.
  static constexpr int kLineThreads = 8;
  using Part = LinePart<2>;
  struct alignas(128) Wide {
    Vec part[kLineThreads];
  };

  // What `createpolicy.fractional.L2::evict_last` with all of the accesses gives, which is made of several
  // instructions at each use. The assembler makes the same number of it for 8.0, 8.6, 8.9, 9.0, 10.0
  // and 12.0; a GPU test compares them.
  static constexpr std::uint64_t kKeep = 0x14f0'0000'0000'0000;

  static constexpr std::uint32_t kPollsPerCheck = 2048;  // about 0.3 ms of polling
  static constexpr std::uint32_t kLastEpoch = 0xffffffffu;
  static constexpr bool kUnalignedAccess = false;

  static NL_FN void store_line(Line& line, Pack pack, std::uint32_t flag) {
    asm volatile(NL_KEPT("st.relaxed.sys.global", ".v4.u32 [%0], {%1, %3, %2, %3}", "%4")::"l"(&line),
                 "r"(low_half(pack)), "r"(high_half(pack)), "r"(flag), "l"(kKeep)
                 : "memory");
  }

  static NL_FN bool try_load_line(const Line& line, std::uint32_t flag, Pack& out, std::uint32_t& seen) {
    std::uint32_t low, low_flag, high, high_flag;
    asm volatile(NL_KEPT("ld.relaxed.sys.global", ".v4.u32 {%0, %1, %2, %3}, [%4]", "%5")
                 : "=r"(low), "=r"(low_flag), "=r"(high), "=r"(high_flag)
                 : "l"(&line), "l"(kKeep)
                 : "memory");
    out = join_halves(low, high);
    seen = low_flag == flag ? high_flag : low_flag;
    return low_flag == flag && high_flag == flag;
  }

  template <Order order, Scope scope>
  static NL_FN void store(Word& word, std::uint32_t value) {
    static_assert(order != Order::acquire);
    if constexpr (order == Order::release) {
      static_assert(scope == Scope::system);
      asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(&word), "r"(value) : "memory");
    } else if constexpr (scope == Scope::system) {
      asm volatile("st.relaxed.sys.global.u32 [%0], %1;" ::"l"(&word), "r"(value) : "memory");
    } else {
      asm volatile(NL_KEPT("st.relaxed.gpu.global", ".u32 [%0], %1", "%2")::"l"(&word), "r"(value), "l"(kKeep)
                   : "memory");
    }
  }

  template <Order order, Scope scope>
  static NL_FN std::uint32_t load(const Word& word) {
    static_assert(order != Order::release);
    std::uint32_t value;
    if constexpr (order == Order::acquire) {
      static_assert(scope == Scope::system);
      asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(&word) : "memory");
    } else if constexpr (scope == Scope::system) {
      asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(&word) : "memory");
    } else {
      asm volatile(NL_KEPT("ld.relaxed.gpu.global", ".u32 %0, [%1]", "%2")
                   : "=r"(value)
                   : "l"(&word), "l"(kKeep)
                   : "memory");
    }
    return value;
  }

  static NL_FN bool claim(Word& word) {
    std::uint32_t before;
    asm volatile("atom.relaxed.gpu.global.cas.b32 %0, [%1], 0, 1;" : "=r"(before) : "l"(&word) : "memory");
    return before == 0;
  }

  // Plain (weak) vector accesses: the payload is ordered by the flag.
  static NL_FN void store_cell(Cell& cell, const Vec& value) {
    asm volatile("st.global.v2.u64 [%0], {%1, %2};" ::"l"(&cell), "l"(value.pack[0]), "l"(value.pack[1])
                 : "memory");
  }
  static NL_FN Vec load_cell(const Cell& cell) {
    Vec value;
    asm volatile("ld.global.v2.u64 {%0, %1}, [%2];"
                 : "=l"(value.pack[0]), "=l"(value.pack[1])
                 : "l"(&cell)
                 : "memory");
    return value;
  }

  static NL_FN void store_packet(Packet& packet, const Vec& value) {
    asm volatile(NL_KEPT("st.relaxed.sys.global", ".v2.u64 [%0], {%1, %2}", "%3")::"l"(&packet),
                 "l"(value.pack[0]), "l"(value.pack[1]), "l"(kKeep)
                 : "memory");
  }
  static NL_FN Vec load_packet(const Packet& packet) {
    Vec value;
    asm volatile(NL_KEPT("ld.relaxed.sys.global", ".v2.u64 {%0, %1}, [%2]", "%3")
                 : "=l"(value.pack[0]), "=l"(value.pack[1])
                 : "l"(&packet), "l"(kKeep)
                 : "memory");
    return value;
  }

  // Has the line of 128 bytes that the packet lies in fetched into L2 and kept there for a while; reads
  // nothing. What arrives for a line that L2 does not have is seen only once the rest of it has come from
  // memory.
  static constexpr std::uint32_t kPacketsANearLine = 8;
  static NL_FN void keep_near([[maybe_unused]] const Packet& packet) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    asm volatile("prefetch.global.L2::evict_last [%0];" ::"l"(&packet));
#endif
  }

  // A line is whole where a full warp stores, adds or loads it in one instruction (docs/dev/lab.md), and no
  // sync in front of the instruction makes sure of that: a warp that came together in a sync may go on in
  // pieces. So the instruction itself asks whether the warp is full, and where it is not, the word is stored
  // last and loaded first.
  static NL_FN void store_part(Wide& line, int part, const Part& value) {
    __syncwarp();
    if (!store_16(kFullWarp, line.part[part], value)) store_word_last(line, part, value);
  }
  static NL_FN Part load_part(const Wide& line, int part) {
    __syncwarp();
    bool together;
    const Part value = load_16(line.part[part], together);
    return together ? value : load_word_first(line, part, value);
  }
  template <Adds adds>
  static NL_FN void add_part(Wide& line, int part, const Part& value) {
    __syncwarp();
    if (!add_16<adds>(kFullWarp, line.part[part], value)) add_word_last<adds>(line, part, value);
  }
  static NL_FN void zero_part(Wide& line, int part) { store_part(line, part, {}); }
  static NL_FN Pack load_word(const Wide& line) {
    Pack word;
    asm volatile("ld.relaxed.sys.global.u64 %0, [%1];"
                 : "=l"(word)
                 : "l"(&line.part[kLineThreads - 1].pack[1])
                 : "memory");
    return word;
  }

  static NL_FN void clear_word(Wide& line) {
    asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(&line.part[kLineThreads - 1].pack[1]),
                 "l"(Pack{0})
                 : "memory");
  }

  // The rank's own buffers. Device scope so that a load is served by L2: the kernel before may have written
  // the data from another SM while this one was already resident (programmatic dependent launch).
  static NL_FN Pack load_pack(const void* aligned8) {
    std::uint32_t low, high;
    asm volatile("ld.relaxed.gpu.global.v2.u32 {%0, %1}, [%2];"
                 : "=r"(low), "=r"(high)
                 : "l"(aligned8)
                 : "memory");
    return join_halves(low, high);
  }
  static NL_FN Vec load_vec(const void* aligned16) {
    std::uint32_t a, b, c, d;
    asm volatile("ld.relaxed.gpu.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(a), "=r"(b), "=r"(c), "=r"(d)
                 : "l"(aligned16)
                 : "memory");
    return {{join_halves(a, b), join_halves(c, d)}};
  }
  static NL_FN std::uint32_t load_element(const std::uint32_t* element) {
    std::uint32_t value;
    asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(element) : "memory");
    return value;
  }
  static NL_FN std::uint16_t load_element(const std::uint16_t* element) {
    std::uint16_t value;
    asm volatile("ld.relaxed.gpu.global.u16 %0, [%1];" : "=h"(value) : "l"(element) : "memory");
    return value;
  }
  static NL_FN std::uint64_t load_element(const std::uint64_t* element) { return load_pack(element); }
  static NL_FN std::uint8_t load_element(const std::uint8_t* element) {
    std::uint16_t value;
    asm volatile("ld.relaxed.gpu.global.u8 %0, [%1];" : "=h"(value) : "l"(element) : "memory");
    return static_cast<std::uint8_t>(value);
  }
  static NL_FN void store_pack(void* aligned8, Pack value) { *static_cast<Pack*>(aligned8) = value; }
  static NL_FN void store_vec(void* aligned16, const Vec& value) {
    store_cell(*static_cast<Cell*>(aligned16), value);
  }

  static constexpr int kLockstep = 32;
  static NL_FN bool all_in_lockstep(bool mine) { return __all_sync(0xffffffffu, mine) != 0; }

  // Ends this thread, for good. Syncs of its CTA no longer count it.
  [[noreturn]] static NL_FN void leave() {
    asm volatile("exit;");
    __builtin_unreachable();
  }

  static NL_FN void fence_system() { __threadfence_system(); }
  static NL_FN void relax(std::uint32_t) {}

  // Both floats to bfloat16, round to nearest even; NaN becomes 0x7fff. `low` lands in the lower half.
  static NL_FN std::uint32_t to_bf16_pair(float low, float high) {
    std::uint32_t pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
  }
  // Both floats to IEEE binary16, likewise; too large becomes infinity.
  static NL_FN std::uint32_t to_f16_pair(float low, float high) {
    std::uint32_t pair;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
  }
  static NL_FN void from_f16_pair(std::uint32_t pair, float& low, float& high) {
    asm("{ .reg .f16 l, h; mov.b32 {l, h}, %2; cvt.f32.f16 %0, l; cvt.f32.f16 %1, h; }"
        : "=f"(low), "=f"(high)
        : "r"(pair));
  }
  // Both floats to 8 bits, nearest even; NaN becomes 0x7f, too large (infinities, too) the largest number.
  static NL_FN std::uint32_t to_e4m3_pair(float low, float high) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
    std::uint16_t pair;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(high), "f"(low));
    return pair;
#else
    return E4m3Format::narrow(low) | E4m3Format::narrow(high) << 8;
#endif
  }
  static NL_FN void from_e4m3_pair(std::uint32_t pair, float& low, float& high) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
    std::uint32_t halves;
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"(static_cast<std::uint16_t>(pair)));
    from_f16_pair(halves, low, high);
#else
    low = E4m3Format::widen(pair & 0xffu);
    high = E4m3Format::widen(pair >> 8 & 0xffu);
#endif
  }
  static NL_FN std::uint32_t to_e5m2_pair(float low, float high) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
    std::uint16_t pair;
    asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(high), "f"(low));
    return pair;
#else
    return E5m2Format::narrow(low) | E5m2Format::narrow(high) << 8;
#endif
  }
  static NL_FN void from_e5m2_pair(std::uint32_t pair, float& low, float& high) {
    // The upper bytes of two binary16.
    from_f16_pair((pair & 0xffu) << 8 | (pair & 0xff00u) << 16, low, high);
  }

  // A NaN loses to a number; +0 beats -0, and -0 beats +0 in min.
  static NL_FN float max_float(float a, float b) { return fmaxf(a, b); }
  static NL_FN float min_float(float a, float b) { return fminf(a, b); }
  // Never contracted into one instruction with what comes before or after.
  static NL_FN float multiply(float a, float b) { return __fmul_rn(a, b); }
  static NL_FN double multiply(double a, double b) { return __dmul_rn(a, b); }
  static NL_FN float divide(float a, float b) { return __fdiv_rn(a, b); }
  static NL_FN double divide(double a, double b) { return __ddiv_rn(a, b); }
  // 1 / sqrt(value), within two units in the last place.
  static NL_FN float reciprocal_root(float value) { return rsqrtf(value); }
  // To the nearest, of two the even one; too large becomes the end of the range, NaN 0. In the lower 8 bits.
  static NL_FN std::uint32_t to_i8(float value) {
    std::int32_t whole;
    asm("cvt.rni.sat.s8.f32 %0, %1;" : "=r"(whole) : "f"(value));
    return value != value ? 0u : static_cast<std::uint32_t>(whole) & 0xffu;
  }
  // Whatever NaN it is made the one of all ones without a sign. The GPU's f32 arithmetic gives no other.
  static NL_FN float one_nan(float value) { return value; }
  static NL_FN double one_nan(double value) { return value != value ? as_double(kNan64) : value; }

  static NL_FN std::uint64_t now_ns() {
    std::uint64_t now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return now;
  }

  // Whether all threads of this one's wide line say true; all in lockstep call it.
  static NL_FN bool all_of_line(bool mine) {
    const std::uint32_t votes = __ballot_sync(0xffffffffu, mine);
    return (votes >> (threadIdx.x % 32 / kLineThreads * kLineThreads) & 0xffu) == 0xffu;
  }

 protected:
  // All but the word's thread, then it: who sees the word sees what the others did. Out of line and rare.
  NL_COLD_FN static void store_word_last(Wide& line, int part, Part value) {
    word_last(part, [&] { store_16(kAnybody, line.part[part], value); });
  }
  template <Adds adds>
  NL_COLD_FN static void add_word_last(Wide& line, int part, Part value) {
    word_last(part, [&] { add_16<adds>(kAnybody, line.part[part], value); });
  }
  template <class Step>
  static NL_FN void word_last(int part, Step&& step) {
    if (part != kLineThreads - 1) step();
    fence_system();
    __syncwarp();
    fence_system();
    if (part == kLineThreads - 1) step();
  }
  // `value` is what this thread got at its own time. The word's thread keeps it, the others look again.
  NL_COLD_FN static Part load_word_first(const Wide& line, int part, Part value) {
    fence_system();
    __syncwarp();
    bool together;
    return part == kLineThreads - 1 ? value : load_16(line.part[part], together);
  }
  // One thread's 16 bytes of a wide line, if all of `needed` execute the instruction together; false: nothing
  // was stored, added or loaded. Who is there is asked in the instruction's own block, so that it holds for
  // it.
  static constexpr std::uint32_t kFullWarp = 0xffffffffu, kAnybody = 0;
#define NL_IF_TOGETHER(instruction)                                                    \
  "{ .reg .pred all; .reg .b32 there; activemask.b32 there; and.b32 there, there, %1;" \
  " setp.eq.u32 all, there, %1; selp.u32 %0, 1, 0, all; @all " instruction " [%2], {%3, %4, %5, %6}; }"
#define NL_STORE_IF_TOGETHER(instruction)                                                            \
  asm volatile(NL_IF_TOGETHER(instruction)                                                           \
               : "=r"(done)                                                                          \
               : "r"(needed), "l"(&at), "r"(low_half(value.pack[0])), "r"(high_half(value.pack[0])), \
                 "r"(low_half(value.pack[1])), "r"(high_half(value.pack[1]))                         \
               : "memory")
  static NL_FN bool store_16(std::uint32_t needed, Vec& at, const Part& value) {
    std::uint32_t done;
    NL_STORE_IF_TOGETHER("st.relaxed.sys.global.v4.u32");
    return done != 0;
  }
  // From sm_90 on; before, nothing is added, and nobody is told to (route::Facts::adds_lines).
  template <Adds adds>
  static NL_FN bool add_16(std::uint32_t needed, Vec& at, const Part& value) {
    static_assert(adds != Adds::i32, "no GPU adds integers line by line");
    std::uint32_t done = 1;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    if constexpr (adds == Adds::f32) {
      NL_STORE_IF_TOGETHER("red.relaxed.sys.global.add.v4.f32");
    } else if constexpr (adds == Adds::f16) {
      NL_STORE_IF_TOGETHER("red.relaxed.sys.global.add.noftz.v4.f16x2");
    } else {
      NL_STORE_IF_TOGETHER("red.relaxed.sys.global.add.noftz.v4.bf16x2");
    }
#endif
    return done != 0;
  }
#undef NL_STORE_IF_TOGETHER
#undef NL_IF_TOGETHER
  // Loads in any case; `together`: in the same instruction as the whole warp.
  static NL_FN Part load_16(const Vec& at, bool& together) {
    std::uint32_t a, b, c, d, all;
    asm volatile(
        "{ .reg .pred all; .reg .b32 there; activemask.b32 there; setp.eq.u32 all, there, 0xffffffff;"
        " selp.u32 %0, 1, 0, all; ld.relaxed.sys.global.v4.u32 {%1, %2, %3, %4}, [%5]; }"
        : "=r"(all), "=r"(a), "=r"(b), "=r"(c), "=r"(d)
        : "l"(&at)
        : "memory");
    together = all != 0;
    return {{join_halves(a, b), join_halves(c, d)}};
  }
};

// For the largest messages, whose packets would take room in L2 that others need more.
struct CudaStreamSpace : CudaSpace {
  static NL_FN void store_packet(Packet& packet, const Vec& value) {
    asm volatile("st.relaxed.sys.global.v2.u64 [%0], {%1, %2};" ::"l"(&packet), "l"(value.pack[0]),
                 "l"(value.pack[1])
                 : "memory");
  }
  static NL_FN Vec load_packet(const Packet& packet) {
    Vec value;
    asm volatile("ld.relaxed.sys.global.v2.u64 {%0, %1}, [%2];"
                 : "=l"(value.pack[0]), "=l"(value.pack[1])
                 : "l"(&packet)
                 : "memory");
    return value;
  }
};
#undef NL_KEPT

// A wrong space, for the test of the test of lines: the half of a line that has the word goes first.
struct CudaSpaceTorn : CudaSpace {
  static NL_FN void store_part(Wide& line, int part, const Part& value) {
    in_halves(part, [&] { store_16(kAnybody, line.part[part], value); });
  }
  template <Adds adds>
  static NL_FN void add_part(Wide& line, int part, const Part& value) {
    in_halves(part, [&] { add_16<adds>(kAnybody, line.part[part], value); });
  }

 private:
  template <class Step>
  static NL_FN void in_halves(int part, Step step) {
    __syncwarp();
    if (part >= kLineThreads / 2) step();
    __syncwarp();
    if (part < kLineThreads / 2) step();
  }
};

// As CudaSpace, with a warp that has fallen apart at every line: nothing of a line is whole but by the order
// of its parts. Slow.
struct CudaSpaceInPieces : CudaSpace {
  static NL_FN void store_part(Wide& line, int part, const Part& value) {
    store_word_last(line, part, value);
  }
  static NL_FN Part load_part(const Wide& line, int part) {
    bool together;
    return load_word_first(line, part, load_16(line.part[part], together));
  }
  template <Adds adds>
  static NL_FN void add_part(Wide& line, int part, const Part& value) {
    add_word_last<adds>(line, part, value);
  }
};

// The whole thread block.
struct CtaCoop {
  NL_FN int thread_rank() const { return static_cast<int>(threadIdx.x); }
  NL_FN int size() const { return static_cast<int>(blockDim.x); }
  NL_FN void sync() {
    if (blockDim.x == 32) {
      __syncwarp();  // one warp: the same guarantees, cheaper
    } else {
      __syncthreads();
    }
  }
  NL_FN bool sync_any(bool mine) { return __syncthreads_or(mine) != 0; }
};

// The whole thread block, of a number of threads that is known at compile time: more than a warp.
template <int kThreads>
struct FixedCtaCoop {
  static_assert(kThreads > 32);
  NL_FN int thread_rank() const { return static_cast<int>(threadIdx.x); }
  static NL_FN constexpr int size() { return kThreads; }
  NL_FN void sync() { __syncthreads(); }
  NL_FN bool sync_any(bool mine) { return __syncthreads_or(mine) != 0; }
};

NL_FN std::uint32_t cta_index() { return blockIdx.x; }
NL_FN std::uint32_t cta_count() { return gridDim.x; }
// The SM this thread runs on.
NL_FN std::uint32_t sm_id() {
  std::uint32_t id;
  asm volatile("mov.u32 %0, %%smid;" : "=r"(id));
  return id;
}
// Cycles of this SM's clock.
NL_FN std::uint64_t sm_clock() {
  std::uint64_t now;
  asm volatile("mov.u64 %0, %%clock64;" : "=l"(now)::"memory");
  return now;
}

// Programmatic dependent launch. The kernel after this one may become resident; what it reads is not released
// by this.
NL_FN void allow_dependent_launch() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }
// The same, unless `late`, where the end of this kernel does it.
NL_FN void allow_dependent_launch(std::uint32_t late) {
  asm volatile(
      "{ .reg .pred now; setp.eq.u32 now, %0, 0; @now griddepcontrol.launch_dependents; }" ::"r"(late)
      : "memory");
}
// Returns when every kernel before has finished and its writes are seen. Nothing another kernel writes may be
// read before.
NL_FN void wait_for_previous_kernel() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
// The same, but not before `addresses` (any of them or-ed together, never 0) are known: what leads to them is
// then computed while the kernel before still runs. Without this hold the assembler moves the wait in front
// of all arithmetic.
NL_FN void wait_for_previous_kernel(std::uint64_t addresses) {
  asm volatile("{ .reg .pred known; setp.ne.u64 known, %0, 0; @known griddepcontrol.wait; }" ::"l"(addresses)
               : "memory");
}

}  // namespace nearlight::exec
