// A tile of a matrix, some rows of it, times up to kMostTokens vectors ("tokens"). The threads of a group
// form teams, which work out a tile each at a time.
//
//   std::uint32_t team(), teams()     the calling thread's, and how many the group has
//   void start(tile)                  its rows are on their way: the first that is worked out, or the first
//                                     after a work_out() whose `next` was kNoTile. kNoTile: nothing
//   void take_tokens()                all threads of the group, once, and a sync of them before a work_out()
//   void work_out(tile, next, emit)   all threads of a team call it with the same. emit(packet, values) is
//                                     called for each packet of the tile by one of them: values are four f32,
//                                     the products of four rows, from 4 * (packet % kTilePackets) on, with
//                                     token packet / kTilePackets. `next` is what the team works out after
//                                     this one: its rows are on their way meanwhile. kNoTile: nothing
//
// Products are added up in f32, in an order that follows from the sizes alone.
#pragma once

#include <cstdint>

#include <nearlight/detail/exec/concepts.hpp>
#include <nearlight/detail/exec/fn.hpp>

namespace nearlight::exec {

inline constexpr std::uint32_t kTileRows = 8;
inline constexpr std::uint32_t kTilePackets = kTileRows / 4;  // of a token
inline constexpr std::uint32_t kMostTokens = 16;
inline constexpr std::uint32_t kTileThreads = 512;  // of a thread block
// Vectors of 16 bytes of the matrix that a thread of a thread block has on their way, in shared memory.
inline constexpr int kTileAhead = 8;
inline constexpr std::uint32_t kTileAheadBytes = kTileAhead * 16 * kTileThreads;
// And what it keeps there besides, of each of its warps: two sets of a tile's products, in f32.
inline constexpr std::uint32_t kTileSumBytes = kTileThreads / 32 * 2 * kMostTokens * kTileRows * 4;
inline constexpr std::uint32_t kNoTile = ~std::uint32_t{0};

// What a block keeps of the tokens in shared memory: bytes from one to the next. Odd multiples of 64, so that
// the eight tokens that a warp reads at a time lie in different banks.
NL_HOST_FN constexpr std::uint32_t tile_token_stride(std::uint32_t row_vecs) {
  return (row_vecs + 7) / 8 * 128 + 64;
}

// What is multiplied: matrices row by row, of 16 bits an element, at multiples of 16 bytes.
struct TileMatrices {
  const void* matrix;  // `tiles` times kTileRows rows of `row_vecs` vectors of 16 bytes
  const void* tokens_at;
  std::uint32_t tokens, row_vecs, tiles;
};

}  // namespace nearlight::exec
