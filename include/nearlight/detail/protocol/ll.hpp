// LL: 8 bytes of payload a line, each with its arrival flag beside it. Any data, no reset, no fence: the flag
// is the epoch.
//
// Orderings: none but the line's own contract ("true means this is the pack of this epoch"). [L1] store_line
// pairs with [L2] try_load_line of the same line and epoch. Reuse of a line is ordered by the session's rule
// (E1).
#pragma once

#include <cstdint>

#include <nearlight/detail/exec/bits.hpp>
#include <nearlight/detail/exec/concepts.hpp>
#include <nearlight/detail/exec/fn.hpp>
#include <nearlight/detail/protocol/epoch.hpp>
#include <nearlight/detail/protocol/fault.hpp>
#include <nearlight/detail/protocol/region.hpp>

namespace nearlight::protocol {

// Sends `pack` to `slot` of one other rank.
template <RegionView V>
NL_FN void ll_send(const V& view, int peer, std::uint32_t slot, exec::Pack pack, std::uint32_t epoch) {
  V::Space::store_line(view.line(peer, bank_of(epoch), view.rank(), slot), pack, epoch);  // [L1]
}
// One look at `slot` from one other rank.
template <RegionView V>
NL_FN bool ll_try_receive(const V& view, int source, std::uint32_t slot, std::uint32_t epoch,
                          exec::Pack& pack) {
  std::uint32_t seen;
  return V::Space::try_load_line(view.line(view.rank(), bank_of(epoch), source, slot), epoch, pack,
                                 seen);  // [L2]
}

// Sends `pack` to `slot` of every other rank. kMax: compile-time bound of the number of ranks.
// The order of peers is rotated by rank, so that not all ranks store to the same one first.
template <int kMax, RegionView V>
NL_FN void ll_broadcast(const V& view, std::uint32_t slot, exec::Pack pack, std::uint32_t epoch) {
  NL_UNROLL
  for (int hop = 1; hop < kMax; ++hop) {
    if (hop >= view.nranks()) break;
    ll_send(view, rank_after(hop, view), slot, pack, epoch);
  }
}

// One look at `slot` from every other rank. True when all have arrived; then packs[i] is the one of
// other_rank(i, rank).
template <int kMax, RegionView V>
NL_FN bool ll_try_gather(const V& view, std::uint32_t slot, std::uint32_t epoch,
                         exec::Pack (&packs)[kMax - 1]) {
  bool all = true;
  NL_UNROLL
  for (int i = 0; i < kMax - 1; ++i) {
    if (i >= view.nranks() - 1) break;
    // Not short-circuited: all the loads are in flight together.
    all &= ll_try_receive(view, other_rank(i, view.rank()), slot, epoch, packs[i]);
  }
  return all;
}

// One slot's lines to and from every other rank. For two ranks their addresses in both banks are worked out
// on construction, so that a group can do it before it has to know the epoch.
template <int kMax, RegionView V>
class LlSlot {
 public:
  NL_FN LlSlot(const V& view, std::uint32_t slot) : view_(view), slot_(slot) {
    if constexpr (kMax == 2) {
      const int rank = view.rank(), peer = 1 - rank;
      for (int bank = 0; bank < kBanks; ++bank) {
        to_[bank] = &view.line(peer, bank, rank, slot);
        from_[bank] = &view.line(rank, bank, peer, slot);
        exec::keep(to_[bank]);
        exec::keep(from_[bank]);
      }
    }
  }

  NL_FN std::uint32_t slot() const { return slot_; }
  // All its addresses or-ed together; 0 where none was worked out.
  NL_FN std::uint64_t addresses() const {
    if constexpr (kMax == 2) {
      return exec::address_bits(to_[0]) | exec::address_bits(to_[1]) | exec::address_bits(from_[0]) |
             exec::address_bits(from_[1]);
    }
    return 0;
  }

  // As ll_broadcast and ll_try_gather of this slot.
  NL_FN void broadcast(exec::Pack pack, std::uint32_t epoch) const {
    if constexpr (kMax == 2) {
      V::Space::store_line(bank_of(epoch) == 0 ? *to_[0] : *to_[1], pack, epoch);  // [L1]
    } else {
      ll_broadcast<kMax>(view_, slot_, pack, epoch);
    }
  }
  NL_FN bool try_gather(std::uint32_t epoch, exec::Pack (&packs)[kMax - 1]) const {
    if constexpr (kMax == 2) {
      std::uint32_t seen;
      return V::Space::try_load_line(bank_of(epoch) == 0 ? *from_[0] : *from_[1], epoch, packs[0],
                                     seen);  // [L2]
    } else {
      return ll_try_gather<kMax>(view_, slot_, epoch, packs);
    }
  }

 private:
  V view_;
  std::uint32_t slot_;
  typename V::Space::Line* to_[kBanks];
  typename V::Space::Line* from_[kBanks];
};

// For the fault record: which source is missing at which of a thread's slots. The slots are `count` ones,
// `step` apart from `first` on, those beyond `last` left out but for the first, which is then `last` itself.
template <RegionView V>
struct LlMissing {
  V view;
  std::uint32_t epoch;
  std::uint32_t last;
  std::uint32_t first, step;
  int count;

  NL_FN void operator()(FaultRecord& fault) const {
    fault.expected = epoch;
    fault.seen = epoch;
    for (int i = 0; i < count; ++i) {
      const std::uint32_t own = first + static_cast<std::uint32_t>(i) * step;
      if (i > 0 && own > last) break;
      fault.slot = own < last ? own : last;
      for (int source = 0; source < view.nranks(); ++source) {
        exec::Pack pack;
        if (source == view.rank()) continue;
        if (!V::Space::try_load_line(view.line(view.rank(), bank_of(epoch), source, fault.slot), epoch, pack,
                                     fault.seen)) {
          fault.peer = source;
          return;
        }
      }
    }
  }
};

}  // namespace nearlight::protocol
