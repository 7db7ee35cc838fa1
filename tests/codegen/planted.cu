// Kernels that are named like the real ones and are wrong in one way each: the check must find it. Never run.
#include <cstdint>

namespace nearlight {

enum class ReduceOp : int { sum = 0, max = 2 };
struct Bf16 {
  std::uint16_t bits;
};

namespace algorithm {

enum class Protocol { ll, simple };

namespace cuda {

enum class Variant { once, loop, delayed };
struct AllReduceArgs {
  std::uint32_t* memory;
  std::uint64_t* cells;
  std::uint32_t late;
};

namespace {

__device__ __forceinline__ void let_next_in(std::uint32_t late) {
  asm volatile(
      "{ .reg .pred now; setp.eq.u32 now, %0, 0; @now griddepcontrol.launch_dependents; }" ::"r"(late)
      : "memory");
}
__device__ __forceinline__ void let_next_in_late(std::uint32_t late) {
  asm volatile(
      "{ .reg .pred now; setp.eq.u32 now, %0, 0; @!now griddepcontrol.launch_dependents; }" ::"r"(late)
      : "memory");
}
__device__ __forceinline__ void always_let_next_in() {
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}
__device__ __forceinline__ void wait() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
__device__ __forceinline__ void line(std::uint32_t* at) {
  std::uint32_t a, b, c, d;
  asm volatile("ld.relaxed.sys.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(a), "=r"(b), "=r"(c), "=r"(d)
               : "l"(at)
               : "memory");
  asm volatile("st.relaxed.sys.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(at + 4), "r"(a), "r"(b), "r"(c),
               "r"(d)
               : "memory");
}
constexpr std::uint64_t kKeep = 0x14f0'0000'0000'0000;
__device__ __forceinline__ void kept_line(std::uint32_t* at) {
  std::uint32_t a, b, c, d;
  asm volatile("ld.relaxed.sys.global.L2::cache_hint.v4.u32 {%0, %1, %2, %3}, [%4], %5;"
               : "=r"(a), "=r"(b), "=r"(c), "=r"(d)
               : "l"(at), "l"(kKeep)
               : "memory");
  asm volatile("st.relaxed.sys.global.L2::cache_hint.v4.u32 [%0], {%1, %2, %3, %4}, %5;" ::"l"(at + 4),
               "r"(a), "r"(b), "r"(c), "r"(d), "l"(kKeep)
               : "memory");
}
__device__ __forceinline__ void narrow_line(std::uint32_t* at) {
  std::uint32_t a, b;
  asm volatile("ld.relaxed.sys.global.v2.u32 {%0, %1}, [%2];" : "=r"(a), "=r"(b) : "l"(at) : "memory");
  asm volatile("st.relaxed.sys.global.v2.u32 [%0], {%1, %2};" ::"l"(at + 4), "r"(a), "r"(b) : "memory");
}
__device__ __forceinline__ void flag(std::uint32_t* at) {
  std::uint32_t a;
  asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(a) : "l"(at) : "memory");
  asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(at + 4), "r"(a) : "memory");
}
__device__ __forceinline__ void relaxed_flag(std::uint32_t* at) {
  std::uint32_t a;
  asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(a) : "l"(at) : "memory");
  asm volatile("st.relaxed.sys.global.u32 [%0], %1;" ::"l"(at + 4), "r"(a) : "memory");
}
// Waits for 7: by acquiring loads beside those of the line, or with a fence in every turn.
template <bool kKept>
__device__ __forceinline__ void acquiring_poll(std::uint32_t* at) {
  std::uint32_t flag;
  do {
    if constexpr (kKept) {
      kept_line(at);
    } else {
      line(at);
    }
    asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(flag) : "l"(at) : "memory");
  } while (flag != 7);
}
__device__ __forceinline__ void fencing_poll(std::uint32_t* at) {
  std::uint32_t flag;
  do {
    asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(flag) : "l"(at) : "memory");
    __threadfence_system();
  } while (flag != 7);
}
__device__ __forceinline__ void cell(std::uint64_t* at) {
  std::uint64_t a, b;
  asm volatile("ld.global.v2.u64 {%0, %1}, [%2];" : "=l"(a), "=l"(b) : "l"(at) : "memory");
  asm volatile("st.global.v2.u64 [%0], {%1, %2};" ::"l"(at + 2), "l"(a), "l"(b) : "memory");
}

}  // namespace

template <class T, ReduceOp op, int kMax, Protocol protocol, int kHeld, Variant variant>
__global__ void __launch_bounds__(512) all_reduce_one_shot(const __grid_constant__ AllReduceArgs args) {
  constexpr bool good = op == ReduceOp::max;
  constexpr bool ll = protocol == Protocol::ll;
  constexpr bool polls_wrong = good && kMax == 4;
  if constexpr (!good && ll && kMax == 4 && kHeld == 1) {  // lets the next kernel in before its own wait
    let_next_in(args.late);
    wait();
  } else {
    if constexpr (!good && ll && kMax == 2 && kHeld == 2)
      kept_line(args.memory + 64);  // reads before it waits
    wait();
    if constexpr (good && ll && kHeld == 2) {
      always_let_next_in();  // whatever the communicator wants
    } else if constexpr (good && ll && kHeld == 4) {
      let_next_in(0);  // likewise
    } else if constexpr (good && !ll && kMax == 8) {
      let_next_in_late(args.late);  // the other way round
    } else {
      let_next_in(args.late);
    }
  }
  if constexpr (polls_wrong && ll) acquiring_poll<true>(args.memory);
  if constexpr (polls_wrong && !ll) fencing_poll(args.memory);
  if constexpr (ll) {
    if constexpr (!good && kMax == 2 && kHeld == 4) {
      narrow_line(args.memory);  // 8 bytes at a time
    } else if constexpr (good && kMax == 8) {
      line(args.memory);  // not kept in L2
    } else {
      kept_line(args.memory);
    }
    if constexpr (!good && kMax == 2 && kHeld == 1) __threadfence_system();
    if constexpr (!good && kMax == 4 && kHeld == 2)
      flag(args.memory + 32);                          // an acquire and a release too many
    if constexpr (!good && kMax == 8 && kHeld == 1) {  // holds more than the registers
      float kept[160];
#pragma unroll
      for (int i = 0; i < 160; ++i)
        kept[i] = static_cast<float*>(static_cast<void*>(args.memory))[i * 512 + threadIdx.x];
      __syncthreads();
#pragma unroll
      for (int i = 0; i < 160; ++i)
        static_cast<float*>(static_cast<void*>(args.memory))[i * 512 + threadIdx.x] = kept[159 - i] + kept[i];
    }
  } else {
    if constexpr (!good && kMax == 2) {
      relaxed_flag(args.memory);  // publishes nothing
    } else {
      flag(args.memory);
    }
    if constexpr (!good && kMax == 4) {
      args.memory[9] = args.memory[8];  // payload in 4 bytes
    } else {
      cell(args.cells);
    }
    if constexpr (!good && kMax == 8) __trap();
  }
}

__device__ __forceinline__ void packet(std::uint64_t* at) {
  std::uint64_t a, b;
  asm volatile("ld.relaxed.sys.global.v2.u64 {%0, %1}, [%2];" : "=l"(a), "=l"(b) : "l"(at) : "memory");
  asm volatile("st.relaxed.sys.global.v2.u64 [%0], {%1, %2};" ::"l"(at + 2), "l"(a), "l"(b) : "memory");
}

__device__ __forceinline__ void kept_packet(std::uint64_t* at) {
  std::uint64_t a, b;
  asm volatile("ld.relaxed.sys.global.L2::cache_hint.v2.u64 {%0, %1}, [%2], %3;"
               : "=l"(a), "=l"(b)
               : "l"(at), "l"(kKeep)
               : "memory");
  asm volatile("st.relaxed.sys.global.L2::cache_hint.v2.u64 [%0], {%1, %2}, %3;" ::"l"(at + 2), "l"(a),
               "l"(b), "l"(kKeep)
               : "memory");
}

template <class T, ReduceOp op, int kMax, int kHeld>
__global__ void __launch_bounds__(512) all_reduce_sentinel(const __grid_constant__ AllReduceArgs args) {
  wait();
  let_next_in(args.late);
  if constexpr (kHeld == 1 && kMax == 2) {
    cell(args.cells);  // weak accesses
  } else {
    packet(args.cells);  // of one packet a thread: not kept in L2
  }
  if constexpr (kHeld == 2 || kHeld == 0) __threadfence_system();  // right between rounds only
  if constexpr (kHeld == 4) flag(args.memory + 32);                // an acquire and a release too many
}
// One load of the matrix, and no product.
template <class T, int kMax, Variant variant>
__global__ void __launch_bounds__(256) gemv(const __grid_constant__ AllReduceArgs args) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(args.cells));
  wait();
  let_next_in(args.late);
  __shared__ float4 one;
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, 16;" ::"r"(
                   static_cast<std::uint32_t>(__cvta_generic_to_shared(&one))),
               "l"(args.memory)
               : "memory");
  kept_packet(args.cells);
}
template __global__ void gemv<Bf16, 2, Variant::once>(const __grid_constant__ AllReduceArgs);

template <class T, ReduceOp op, int kMax>
__global__ void __launch_bounds__(512) all_reduce_ll128(const __grid_constant__ AllReduceArgs args) {
  constexpr bool good = op == ReduceOp::max;
  wait();
  let_next_in(args.late);
  if constexpr (good || kMax != 2) __syncwarp();  // else each thread for itself
  if constexpr (good || kMax != 4) {
    line(args.memory);
  } else {
    narrow_line(args.memory);  // 8 bytes at a time
  }
  if constexpr (good && kMax == 4) acquiring_poll<false>(args.memory);
  if constexpr (!good && kMax == 8) __threadfence_system();
}
template __global__ void all_reduce_ll128<int, ReduceOp::sum, 2>(const __grid_constant__ AllReduceArgs);
template __global__ void all_reduce_ll128<int, ReduceOp::sum, 4>(const __grid_constant__ AllReduceArgs);
template __global__ void all_reduce_ll128<int, ReduceOp::sum, 8>(const __grid_constant__ AllReduceArgs);
template __global__ void all_reduce_ll128<int, ReduceOp::max, 2>(const __grid_constant__ AllReduceArgs);
template __global__ void all_reduce_ll128<int, ReduceOp::max, 4>(const __grid_constant__ AllReduceArgs);

template <class T>
__global__ void __launch_bounds__(512)
    all_reduce_two_shot_atomic(const __grid_constant__ AllReduceArgs args) {
  wait();
  let_next_in(args.late);
  __syncwarp();
  line(args.memory);  // adds nothing
}
template __global__ void all_reduce_two_shot_atomic<float>(const __grid_constant__ AllReduceArgs);

template __global__ void all_reduce_sentinel<float, ReduceOp::sum, 2, 0>(
    const __grid_constant__ AllReduceArgs);
template __global__ void all_reduce_sentinel<float, ReduceOp::sum, 2, 1>(
    const __grid_constant__ AllReduceArgs);
template __global__ void all_reduce_sentinel<float, ReduceOp::sum, 4, 1>(
    const __grid_constant__ AllReduceArgs);
template __global__ void all_reduce_sentinel<float, ReduceOp::sum, 2, 2>(
    const __grid_constant__ AllReduceArgs);
template __global__ void all_reduce_sentinel<float, ReduceOp::sum, 2, 4>(
    const __grid_constant__ AllReduceArgs);

// clang-format off
#define PLANT(op, ranks, protocol, held)                                                                     \
  template __global__ void                                                                                  \
  all_reduce_one_shot<float, ReduceOp::op, ranks, Protocol::protocol, held, Variant::once>(                 \
      const __grid_constant__ AllReduceArgs);
// clang-format on

PLANT(sum, 2, ll, 1)
PLANT(sum, 2, ll, 2)
PLANT(sum, 2, ll, 4)
PLANT(sum, 4, ll, 1)
PLANT(sum, 4, ll, 2)
PLANT(sum, 8, ll, 1)
PLANT(sum, 2, simple, 0)
PLANT(sum, 4, simple, 0)
PLANT(sum, 8, simple, 0)
PLANT(max, 2, ll, 1)
PLANT(max, 2, ll, 2)
PLANT(max, 2, ll, 4)
PLANT(max, 8, ll, 1)
PLANT(max, 2, simple, 0)
PLANT(max, 4, ll, 1)
PLANT(max, 4, simple, 0)
PLANT(max, 8, simple, 0)

}  // namespace cuda
}  // namespace algorithm
}  // namespace nearlight
