// A matrix times a few vectors, its columns spread over the ranks, and the AllReduce of the products: tile by
// tile. What a tile gives is sent as soon as it is there, while the next is worked out; a group waits for the
// others once, behind its last tile.
//
// By the sentinel (protocol/sentinel.hpp), in f32: a packet has four elements of a tile for one token. A rank
// sends its own part to itself, too, so that whoever reduces a packet need not be the thread that worked it
// out: what has arrived is there for every thread. The orderings are one_shot_sentinel's: [N1], [N2] a
// packet, [N3], [E1] between rounds. A failed thread neither sends nor waits nor writes, but works out its
// tiles, which is done by several threads together.
#pragma once

#include <cstdint>
#include <type_traits>

#include <nearlight/detail/exec/bits.hpp>
#include <nearlight/detail/exec/concepts.hpp>
#include <nearlight/detail/exec/fn.hpp>
#include <nearlight/detail/protocol/sentinel.hpp>
#include <nearlight/detail/protocol/session.hpp>
#include "algorithm/one_shot.hpp"
#include "algorithm/one_shot_sentinel.hpp"
#include "algorithm/reduce.hpp"
#include "algorithm/sentinel_cell.hpp"
#include "exec/tile_product.hpp"

namespace nearlight::algorithm {

// Matrices row by row, without gaps; addresses are multiples of 16 bytes.
struct Gemv {
  const void* input;   // `tokens` rows of `in_vecs` vectors of 16 bytes
  const void* weight;  // `tiles` times exec::kTileRows such rows; not written by the kernel before
  void* output;        // `tokens` rows of `tiles` times exec::kTileRows elements
  std::uint32_t tokens, in_vecs, tiles;
};

// Bytes of shared memory that a CTA may have in all: where the GPU says so (those of compute capability 9.0
// to 11.x do), and elsewhere; and what of it is left for the tokens.
inline constexpr std::uint32_t kLargeSharedCta = 227 * 1024, kSharedCta = 99 * 1024;
inline constexpr std::uint32_t kGemvLargeShared =
    kLargeSharedCta - exec::kTileAheadBytes - exec::kTileSumBytes;
inline constexpr std::uint32_t kGemvShared = kSharedCta - exec::kTileAheadBytes - exec::kTileSumBytes;
constexpr std::uint32_t gemv_shared(bool large) { return large ? kGemvLargeShared : kGemvShared; }

// There is no code for GPUs before: 80 is compute capability 8.0.
inline constexpr int kGemvCapability = 80;

NL_HOST_FN constexpr std::uint32_t packets_of_tile(std::uint32_t tokens) {
  return tokens * exec::kTilePackets;
}

// A group's tiles: it takes turns with the others.
struct TileShare {
  std::uint32_t index, count, tiles;
  NL_FN std::uint32_t turns() const { return index < tiles ? (tiles - index + count - 1) / count : 0; }
  NL_FN std::uint32_t tile(std::uint32_t turn) const { return index + turn * count; }
  // kNoTile past the last turn.
  NL_FN std::uint32_t tile_if(std::uint32_t turn, std::uint32_t turns) const {
    return turn < turns ? tile(turn) : exec::kNoTile;
  }
};

// Adds up the ranks' parts, the first one as it is, and rounds once.
template <class S, class T>
class GemvOutput {
 public:
  using L = Lanes<S, T>;
  static_assert(L::kPerPack == 4);
  using Rewrite = SentinelCell<float>;

  NL_FN explicit GemvOutput(const Gemv& gemv)
      : output_(static_cast<char*>(gemv.output)), tiles_(gemv.tiles) {}

  // Four elements of `packet` of a tile; parts[r] is rank r's.
  template <int kMax>
  NL_FN void store(std::uint32_t tile, std::uint32_t packet, const exec::Vec (&parts)[kMax],
                   int nranks) const {
    float sum[4];
    widen(parts[0], sum);
    NL_UNROLL
    for (int source = 1; source < kMax; ++source) {
      if (source >= nranks) break;
      float more[4];
      widen(parts[source], more);
      NL_UNROLL
      for (int i = 0; i < 4; ++i) sum[i] += more[i];
    }
    const std::uint32_t token = packet / exec::kTilePackets, quarter = packet % exec::kTilePackets;
    const std::uint64_t pack = (std::uint64_t{token} * tiles_ + tile) * exec::kTilePackets + quarter;
    S::store_pack(output_ + pack * sizeof(exec::Pack), L::narrow(sum));
  }

 private:
  static NL_FN void widen(const exec::Vec& vec, float (&out)[4]) {
    NL_UNROLL
    for (int half = 0; half < 2; ++half) {
      out[2 * half] = exec::as_float(exec::low_half(vec.pack[half]));
      out[2 * half + 1] = exec::as_float(exec::high_half(vec.pack[half]));
    }
  }
  char* output_;
  std::uint32_t tiles_;
};

// All tiles of a group, the first of which has been started, with nobody to send them to. Product:
// exec/tile_product.hpp; the tokens are there.
template <class Product, class Output>
NL_FN void gemv_tiles(const TileShare& share, Product& product, const Output& output) {
  const std::uint32_t turns = share.turns();
  for (std::uint32_t turn = product.team(); turn < turns; turn += product.teams()) {
    const std::uint32_t tile = share.tile(turn);
    product.work_out(tile, share.tile_if(turn + product.teams(), turns),
                     [&](std::uint32_t packet, const exec::Vec& values) {
                       const exec::Vec parts[1] = {values};
                       output.template store<1>(tile, packet, parts, 1);
                     });
  }
}

// The matrix goes through the GPU's L2, and pushes out of it what has not been used since the last call: the
// packets that will be waited for are fetched again while there is time. Of both banks, so that nothing waits
// for the epoch. Where the space has no such thing, nothing.
template <class V>
NL_FN void keep_packets_near(const V& view, std::uint32_t packets, std::uint32_t lane, std::uint32_t width) {
  if constexpr (requires { V::Space::kPacketsANearLine; }) {
    constexpr std::uint32_t kStep = V::Space::kPacketsANearLine;
    for (int source = 0; source < view.nranks(); ++source) {
      for (std::uint32_t index = lane * kStep; index < packets; index += width * kStep) {
        V::Space::keep_near(view.packet(view.rank(), 0, source, index));
        V::Space::keep_near(view.packet(view.rank(), 1, source, index));
      }
    }
  }
}

// The region has the packets of one tile at least.
template <int kMax, class SessionT, class Product, class Output, class Hooks>
NL_FN void gemv_all_reduce(SessionT& session, const TileShare& share, std::uint32_t tokens, Product& product,
                           const Output& output, const Hooks& hooks) {
  using exec::Vec;
  using V = std::remove_cvref_t<decltype(session.view())>;
  using Rewrite = typename Output::Rewrite;
  using Cell = typename Rewrite::Cell;
  const V& view = session.view();
  const std::uint32_t a_tile = packets_of_tile(tokens), turns = share.turns();
  const std::uint32_t span = view.packets() / a_tile;  // tiles of a round
  const auto lane = static_cast<std::uint32_t>(session.coop().thread_rank());
  const auto width = static_cast<std::uint32_t>(session.coop().size());
  constexpr auto kRun = static_cast<std::uint32_t>(V::Space::kLockstep);

  std::uint32_t turn = product.team();
  for (std::uint32_t first = 0; first < turns; first += span) {
    const std::uint32_t end = turns - first < span ? turns : first + span;
    const std::uint32_t epoch = session.begin_epoch();
    // Nothing of a round is under way while another one is waited for: it would have to stay in registers.
    product.start(share.tile_if(turn, end));
    if (first == 0) {
      keep_packets_near(view, (end - first) * a_tile, lane, width);
      product.take_tokens();
    }
    session.sync_while_in_flight();
    hooks.at(DelayPoint::before_publish);
    for (; turn < end; turn += product.teams()) {
      const std::uint32_t place = (turn - first) * a_tile;
      product.work_out(share.tile(turn), share.tile_if(turn + product.teams(), end),
                       [&](std::uint32_t packet, const Vec& values) {
                         if (session.failed()) return;
                         const Vec sent = rewritten<Rewrite>(values);
                         protocol::sentinel_broadcast<kMax>(view, place + packet, sent, epoch);
                         protocol::sentinel_send(view, view.rank(), place + packet, sent, epoch);
                       });
    }
    hooks.at(DelayPoint::published);
    const std::uint32_t packets = (end - first) * a_tile;
    for (std::uint32_t run = lane / kRun * kRun; run < packets; run += width) {
      const std::uint32_t index = run + lane % kRun;
      const bool mine = index < packets;
      Vec parts[kMax];
      const bool arrived = session.wait_in_lockstep(
          [&] {
            bool all = true;
            NL_UNROLL
            for (int source = 0; source < kMax; ++source) {
              if (source >= view.nranks()) break;
              if (mine)
                all &= protocol::sentinel_try_receive<Cell>(view, source, index, epoch, parts[source]);
            }
            return all;
          },
          protocol::SentinelMissing<Cell, V>{view, epoch, index, 0, mine ? 1 : 0});
      if (run == 0 && arrived) hooks.at(DelayPoint::after_arrival);
      if (!arrived || !mine) continue;
      NL_UNROLL
      for (int source = 0; source < kMax; ++source) {
        if (source >= view.nranks()) break;
        protocol::sentinel_reset_one(view, source, index, epoch);
      }
      output.template store<kMax>(share.tile(first + index / a_tile), index % a_tile, parts, view.nranks());
    }
    session.note_resets();
    hooks.at(DelayPoint::after_read);
    session.end_epoch();
  }
}

}  // namespace nearlight::algorithm
