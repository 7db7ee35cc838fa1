// Tiles of a matrix of bf16 or f16 times a few vectors, on a thread block of whole warps. sm_80 and later:
// the code for GPUs before is a shell that nobody launches.
//
// It lets the next kernel in, with a team's last tile (griddepcontrol.launch_dependents), where it may; the
// wait for the one before is the kernel's own affair.
//
// A matrix is read once, so what counts is that enough of it is under way: a thread has kTileAhead vectors of
// 16 bytes in flight, over the end of a tile, too. They are copied into shared memory, each to where its own
// thread reads it: registers would be waited for by few counters, each of several loads, so that a thread
// that waits for the oldest one waits for most of them. The products are the tensor cores': m16n8k16 with the
// tokens as its 16 rows and the tile's rows as its 8 columns. Which elements of a row count as the k-th of an
// instruction does not matter as long as both sides agree, so each lane takes 16 bytes as they lie, for two
// instructions.
#pragma once

#include <cstdint>
#include <type_traits>

#include <nearlight/detail/exec/cuda_space.cuh>
#include <nearlight/detail/exec/fn.hpp>
#include "base/types.hpp"
#include "exec/cuda_span.cuh"
#include "exec/tile_product.hpp"

namespace nearlight::exec {

// T: Bf16 or F16.
template <class T>
class CudaTileProduct {
 public:
  static constexpr std::uint32_t kWarps = kTileThreads / 32;

  // `splits`: warps of a team, a power of two up to kWarps. `in_shared`: the tokens are kept in dynamic
  // shared memory, tile_token_stride() each; else they are read where they lie. `late`: 1, the next kernel is
  // not let in.
  NL_FN CudaTileProduct(const TileMatrices& what, std::uint32_t splits, bool in_shared, std::uint32_t late)
      : what_(what), splits_(splits), in_shared_(in_shared), late_(late) {
    const std::uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    team_ = warp / splits;
    part_ = warp % splits;
    row_ = lane / 4;
    const std::uint32_t chunks = (what.row_vecs + kChunk - 1) / kChunk;
    const std::uint32_t part_chunks = (chunks + splits - 1) / splits;
    batches_ = (part_chunks + kAhead - 1) / kAhead;
    first_ = part_ * part_chunks * kChunk + lane % 4;
    const std::uint32_t past = (part_ + 1) * part_chunks * kChunk;
    end_ = past < what.row_vecs ? past : what.row_vecs;
    tokens_at_ = in_shared ? shared_tokens() : static_cast<const char*>(what.tokens_at);
    stride_ = in_shared ? tile_token_stride(what.row_vecs) : what.row_vecs * 16;
  }

  NL_FN std::uint32_t team() const { return team_; }
  NL_FN std::uint32_t teams() const { return kWarps / splits_; }

  // Has the first lines of a tile fetched into L2, which is coherent: it may be called before the matrix has
  // been written, and reads nothing.
  NL_FN void fetch(std::uint32_t tile) const {
    if (tile == kNoTile) return;
    constexpr std::uint32_t kLineVecs = 8;  // of 128 bytes
    const std::uint32_t begin = first_ - threadIdx.x % 4;
    const std::uint32_t most = begin + kAhead * kChunk, end = most < end_ ? most : end_;
    // Four lanes a row.
    for (std::uint32_t at = begin + threadIdx.x % 4 * kLineVecs; at < end; at += 4 * kLineVecs)
      asm volatile("prefetch.global.L2 [%0];" ::"l"(row_of(tile) + std::uint64_t{at} * 16));
  }

  NL_FN void start(std::uint32_t tile) {
    const Batch batch = batch_of(tile, 0);
    NL_UNROLL
    for (int i = 0; i < kAhead; i += kTogether) load(batch, i);
  }
  // Instead of working out what was started: nothing is on its way any more.
  NL_FN void drop() const {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_all;" ::: "memory");
#endif
  }
  // Instead of take_tokens(): where vector `vec` of a token is to be put, in shared memory.
  NL_FN Vec& token_place(std::uint32_t token, std::uint32_t vec) const {
    return *reinterpret_cast<Vec*>(shared_tokens() + token * stride_ + vec * 16);
  }
  NL_FN void take_tokens() const {
    if (!in_shared_) return;
    for (std::uint32_t at = threadIdx.x; at < what_.tokens * what_.row_vecs; at += kTileThreads) {
      const std::uint32_t token = at / what_.row_vecs, vec = at % what_.row_vecs;
      const Vec value =
          CudaSpace::load_vec(static_cast<const char*>(what_.tokens_at) + std::uint64_t{at} * 16);
      token_place(token, vec) = value;
    }
  }

  template <class Emit>
  NL_FN void work_out(std::uint32_t tile, std::uint32_t next, Emit&& emit) {
    // The kernel after this one begins to fetch its matrix when it starts. Before this one's last tile (of
    // the first round, where there are several) that would only be pushed out of L2 again.
    if (next == kNoTile) allow_dependent_launch(late_);
    const bool two = what_.tokens > 8;
    const bool has_first = row_ < what_.tokens, has_second = row_ + 8 < what_.tokens;
    float sums[kTogether][4] = {};
    for (std::uint32_t batch = 0; batch < batches_; ++batch) {
      const Batch refill = batch + 1 < batches_ ? batch_of(tile, batch + 1) : batch_of(next, 0);
      const std::uint32_t at = first_ + batch * kAhead * kChunk;
      const char* const from = tokens_at_ + (row_ * stride_ + at * 16);
      NL_UNROLL
      for (int i = 0; i < kAhead; i += kTogether) {
        Words first[kTogether], second[kTogether], rows[kTogether];
        NL_UNROLL
        for (int k = 0; k < kTogether; ++k) {
          const bool inside = at + static_cast<std::uint32_t>(i + k) * kChunk < end_;
          first[k] = token_words(from + (i + k) * kChunk * 16, inside && has_first);
          second[k] = Words{};
          if (two) second[k] = token_words(from + (i + k) * kChunk * 16 + 8 * stride_, inside && has_second);
        }
        wait_for_oldest();
        NL_UNROLL
        for (int k = 0; k < kTogether; ++k) rows[k] = loaded(i + k);
        NL_UNROLL
        for (int half = 0; half < 4; half += 2) {
          NL_UNROLL
          for (int k = 0; k < kTogether; ++k) {
            multiply(sums[k], first[k].word[half], second[k].word[half], first[k].word[half + 1],
                     second[k].word[half + 1], rows[k].word[half], rows[k].word[half + 1]);
          }
        }
        load(refill, i);
      }
    }
    NL_UNROLL
    for (int k = 1; k < kTogether; ++k) {
      NL_UNROLL
      for (int j = 0; j < 4; ++j) sums[0][j] += sums[k][j];
    }
    add_up(sums[0], emit);
  }

 private:
  static constexpr int kAhead = kTileAhead;
  // Vectors that are waited for, multiplied and loaded anew together, each into a sum of its own: a
  // scheduler's few warps do not hide that one product waits for another's sum.
  static constexpr int kTogether = 2;
  static_assert(kAhead % kTogether == 0);
  // Vectors of a row that the four lanes of a row take at a time.
  static constexpr std::uint32_t kChunk = 4;
  // Of a warp's sums: [token][row of the tile].
  static constexpr std::uint32_t kSums = kMostTokens * kTileRows;

  struct Words {
    std::uint32_t word[4];
  };
  // What is loaded together.
  struct Batch {
    const char* from;
    std::uint32_t at, end;  // vectors of a row
  };

  // The lines on their way first, then the tokens.
  static NL_FN char* shared() {
    extern __shared__ float4 in_shared[];
    return reinterpret_cast<char*>(in_shared);
  }
  static NL_FN char* shared_tokens() { return shared() + kTileAheadBytes; }
  // Neighbours side by side, so that no two lie in the same banks.
  static NL_FN std::uint32_t place_of(int i) {
    return static_cast<std::uint32_t>(__cvta_generic_to_shared(shared())) +
           (static_cast<std::uint32_t>(i) * kTileThreads + threadIdx.x) * 16;
  }
  // Of kSums a warp. Two sets, in turns: who writes one for the tile after the next has met, at the next,
  // those that read it.
  static NL_FN float* shared_sums(std::uint32_t set) {
    __shared__ float4 memory[kTileSumBytes / sizeof(float4)];
    return reinterpret_cast<float*>(memory) + set * kWarps * kSums;
  }

  NL_FN const char* row_of(std::uint32_t tile) const {
    return static_cast<const char*>(what_.matrix) +
           (std::uint64_t{tile} * kTileRows + row_) * what_.row_vecs * 16;
  }
  NL_FN Batch batch_of(std::uint32_t tile, std::uint32_t batch) const {
    if (tile == kNoTile) return {static_cast<const char*>(what_.matrix), 0, 0};
    const std::uint32_t at = first_ + batch * kAhead * kChunk;
    return {row_of(tile) + std::uint64_t{at} * 16, at, end_};
  }
  // Nothing is loaded from past the end, which counts as zeros. From L2, where fetch() has it; it is not kept
  // in L1. What is loaded together is a group of its own, also where there is nothing to load:
  // wait_for_oldest() counts them. A place is written again behind the load of what was there.
  static NL_FN void load(const Batch& batch, int i) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    if (batch.end != 0) {
      NL_UNROLL
      for (int k = i; k < i + kTogether; ++k) {
        const bool inside = batch.at + static_cast<std::uint32_t>(k) * kChunk < batch.end;
        asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(place_of(k)),
                     "l"(inside ? batch.from + k * kChunk * 16 : batch.from), "r"(inside ? 16u : 0u)
                     : "memory");
      }
    }
    asm volatile("cp.async.commit_group;" ::: "memory");
#else
    (void)batch;
    (void)i;
#endif
  }
  static NL_FN void wait_for_oldest() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_group %0;" ::"n"(kAhead / kTogether - 1) : "memory");
#endif
  }
  // Of the oldest group that was on its way; the calling thread's own.
  static NL_FN Words loaded(int i) {
    Words words{};
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(words.word[0]), "=r"(words.word[1]), "=r"(words.word[2]), "=r"(words.word[3])
                 : "r"(place_of(i))
                 : "memory");
#else
    (void)i;
#endif
    return words;
  }
  // Weak: behind the wait for the kernel before, and the sync behind take_tokens(), they are there. Zeros
  // where not inside.
  static NL_FN Words token_words(const char* from, bool inside) {
    Words words{};
    asm volatile("{ .reg .pred inside; setp.ne.u32 inside, %5, 0; @inside ld.v4.u32 {%0, %1, %2, %3}, [%4]; }"
                 : "+r"(words.word[0]), "+r"(words.word[1]), "+r"(words.word[2]), "+r"(words.word[3])
                 : "l"(from), "r"(inside ? 1u : 0u));
    return words;
  }

  // sum += a (16 tokens x 16) * b (16 x 8 rows); this lane's: tokens lane / 4 and that + 8, rows 2 * (lane %
  // 4) and the one after it.
  static NL_FN void multiply(float (&sum)[4], std::uint32_t a0, std::uint32_t a1, std::uint32_t a2,
                             std::uint32_t a3, std::uint32_t b0, std::uint32_t b1) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    if constexpr (std::is_same_v<T, Bf16>) {
      asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9},"
          " {%0, %1, %2, %3};"
          : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
          : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
    } else {
      static_assert(std::is_same_v<T, F16>);
      asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9},"
          " {%0, %1, %2, %3};"
          : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
          : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
    }
#endif
  }

  // The team's warps' sums, in the order of the warps; its first warp has a packet a lane.
  template <class Emit>
  NL_FN void add_up(const float (&sum)[4], Emit&& emit) {
    const std::uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    float* const set = shared_sums(turn_);
    turn_ ^= 1;
    float* const mine = set + warp * kSums + row_ * kTileRows + lane % 4 * 2;
    *reinterpret_cast<float2*>(mine) = {sum[0], sum[1]};
    if (what_.tokens > 8) *reinterpret_cast<float2*>(mine + 8 * kTileRows) = {sum[2], sum[3]};
    if (splits_ == 1) {
      __syncwarp();
    } else {
      SpanCoop(team_ * splits_ * 32, splits_ * 32, team_).sync();
    }
    if (part_ != 0) return;
    if (lane < what_.tokens * (kTileRows / 4)) {
      const float* const from = set + warp * kSums + lane * 4;
      float4 all = *reinterpret_cast<const float4*>(from);
      for (std::uint32_t other = 1; other < splits_; ++other) {
        const float4 more = *reinterpret_cast<const float4*>(from + other * kSums);
        all = {all.x + more.x, all.y + more.y, all.z + more.z, all.w + more.w};
      }
      emit(lane, Vec{{join_halves(__float_as_uint(all.x), __float_as_uint(all.y)),
                      join_halves(__float_as_uint(all.z), __float_as_uint(all.w))}});
    }
    __syncwarp();  // the tensor cores take whole warps
  }

  TileMatrices what_;
  std::uint32_t splits_;
  bool in_shared_;
  std::uint32_t late_;
  std::uint32_t team_, part_, row_, batches_;
  std::uint32_t first_, end_;  // vectors of a row: this lane's first, and the end of its warp's part
  const char* tokens_at_;
  std::uint32_t stride_;  // bytes from one token to the next
  std::uint32_t turn_ = 0;
};

}  // namespace nearlight::exec
