// Sentinel: 16 bytes of payload a packet and no flag. A packet at rest holds the sentinel, all bits set; what
// arrives replaces it, so data may never look like it (the sender's affair: SentinelCell). The reader puts
// the sentinel back.
//
// Orderings: none for the payload, which is its own arrival: [N1] store_packet pairs with [N2] load_packet of
// the same packet, half by half. [N3] orders the reset: our reset of a packet < fence, or the end of our
// session < our next send < the peer hears it < the peer's fence, or the end of its session < the peer's next
// store into that packet. With two banks, used in turns, a packet of epoch e is next stored to in epoch e+2,
// by a peer that has heard our epoch e+1, which may be LL's; so in one session the two epochs after e begin
// with a fence, and the boundary between two kernels does it for nothing ([E3]). On the CPU the packets
// release and acquire.
#pragma once

#include <cstdint>

#include <nearlight/detail/exec/bits.hpp>
#include <nearlight/detail/exec/concepts.hpp>
#include <nearlight/detail/exec/fn.hpp>
#include <nearlight/detail/protocol/epoch.hpp>
#include <nearlight/detail/protocol/fault.hpp>
#include <nearlight/detail/protocol/region.hpp>

namespace nearlight::protocol {

inline constexpr exec::Pack kNothing = ~exec::Pack{0};
NL_FN constexpr exec::Vec empty_packet() { return {{kNothing, kNothing}}; }

// Whether a cell of the pack has not arrived. Cell: std::uint32_t, or std::uint64_t for elements of 8 bytes,
// whose lower half may be anything.
template <class Cell>
NL_FN bool has_nothing(exec::Pack pack) {
  if constexpr (sizeof(Cell) == 8) return pack == kNothing;
  return exec::low_half(pack) == 0xffffffffu || exec::high_half(pack) == 0xffffffffu;
}
template <class Cell>
NL_FN bool has_arrived(const exec::Vec& vec) {
  // Not short-circuited: no branch in the poll.
  return !(has_nothing<Cell>(vec.pack[0]) | has_nothing<Cell>(vec.pack[1]));
}

// Sends `vec`, which must not look like the sentinel in any cell, to packet `index` of one other rank.
template <RegionView V>
NL_FN void sentinel_send(const V& view, int peer, std::uint32_t index, const exec::Vec& vec,
                         std::uint32_t epoch) {
  V::Space::store_packet(view.packet(peer, bank_of(epoch), view.rank(), index), vec);  // [N1]
}
// One look at packet `index` from one other rank.
template <class Cell, RegionView V>
NL_FN bool sentinel_try_receive(const V& view, int source, std::uint32_t index, std::uint32_t epoch,
                                exec::Vec& got) {
  got = V::Space::load_packet(view.packet(view.rank(), bank_of(epoch), source, index));  // [N2]
  return has_arrived<Cell>(got);
}
// After it was read: the next but one epoch finds it empty. [N3] is the caller's.
template <RegionView V>
NL_FN void sentinel_reset_one(const V& view, int source, std::uint32_t index, std::uint32_t epoch) {
  V::Space::store_packet(view.packet(view.rank(), bank_of(epoch), source, index), empty_packet());
}

// The same to every other rank.
template <int kMax, RegionView V>
NL_FN void sentinel_broadcast(const V& view, std::uint32_t index, const exec::Vec& vec, std::uint32_t epoch) {
  NL_UNROLL
  for (int hop = 1; hop < kMax; ++hop) {
    if (hop >= view.nranks()) break;
    sentinel_send(view, rank_after(hop, view), index, vec, epoch);
  }
}

// One look at packet `index` from every other rank. True when all have arrived; then got[i] is the one of
// other_rank(i, rank).
template <class Cell, int kMax, RegionView V>
NL_FN bool sentinel_try_gather(const V& view, std::uint32_t index, std::uint32_t epoch,
                               exec::Vec (&got)[kMax - 1]) {
  bool all = true;
  NL_UNROLL
  for (int i = 0; i < kMax - 1; ++i) {
    if (i >= view.nranks() - 1) break;
    all &= sentinel_try_receive<Cell>(view, other_rank(i, view.rank()), index, epoch, got[i]);
  }
  return all;
}

// Those from every other rank.
template <int kMax, RegionView V>
NL_FN void sentinel_reset(const V& view, std::uint32_t index, std::uint32_t epoch) {
  NL_UNROLL
  for (int i = 0; i < kMax - 1; ++i) {
    if (i >= view.nranks() - 1) break;
    sentinel_reset_one(view, other_rank(i, view.rank()), index, epoch);
  }
}

// For the fault record: whose packet is missing, of `count` ones `step` apart from `index` on. There is no
// flag: `seen` is 0.
template <class Cell, RegionView V>
struct SentinelMissing {
  V view;
  std::uint32_t epoch;
  std::uint32_t index, step;
  int count;

  NL_FN void operator()(FaultRecord& fault) const {
    fault.expected = epoch;
    fault.seen = 0;
    for (int i = 0; i < count; ++i) {
      fault.slot = index + static_cast<std::uint32_t>(i) * step;
      for (int source = 0; source < view.nranks(); ++source) {
        if (source == view.rank()) continue;
        if (has_arrived<Cell>(
                V::Space::load_packet(view.packet(view.rank(), bank_of(epoch), source, fault.slot)))) {
          continue;
        }
        fault.peer = source;
        return;
      }
    }
    fault.seen = epoch;
  }
};

}  // namespace nearlight::protocol
