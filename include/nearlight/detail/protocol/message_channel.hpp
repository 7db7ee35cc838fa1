// Channels of single messages that carry their own arrival, LL's and the sentinel's: any thread sends to, or
// receives from, any slot.
//
// Orderings: [L1] send pairs with [L2] recv of the same slot and epoch, [N1] with [N2] likewise. They order
// the message itself and nothing beside it: what else a thread stored before it sent need not be seen by who
// has received. (On the CPU it is.)
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include <nearlight/detail/exec/bits.hpp>
#include <nearlight/detail/protocol/channel_base.hpp>
#include <nearlight/detail/protocol/ll.hpp>
#include <nearlight/detail/protocol/sentinel.hpp>

namespace nearlight::protocol {

// How a message travels as a line of LL: up to 8 bytes, any bits.
struct LlCarrier {
  using Packet = exec::Pack;
  static constexpr bool kResets = false;

  template <RegionView V>
  static NL_FN std::uint32_t capacity(const V& view) {
    return view.slots();
  }
  static NL_FN Packet to_send(Packet packet) { return packet; }
  template <RegionView V>
  static NL_FN void send(const V& view, int peer, std::uint32_t slot, Packet packet, std::uint32_t epoch) {
    ll_send(view, peer, slot, packet, epoch);  // [L1]
  }
  template <RegionView V>
  static NL_FN bool try_receive(const V& view, int source, std::uint32_t slot, std::uint32_t epoch,
                                Packet& got, std::uint32_t& seen) {
    return V::Space::try_load_line(view.line(view.rank(), bank_of(epoch), source, slot), epoch, got,
                                   seen);  // [L2]
  }
  template <RegionView V>
  static NL_FN void reset(const V&, int, std::uint32_t, std::uint32_t) {}
};

// As a packet of the sentinel: up to 16 bytes, and 32-bit cells of all ones arrive as 0x7fffffff (which as
// a float is a NaN as well). The receiver puts the packet back to rest, before the epoch ends.
struct SentinelCarrier {
  using Packet = exec::Vec;
  static constexpr bool kResets = true;

  template <RegionView V>
  static NL_FN std::uint32_t capacity(const V& view) {
    return view.packets();
  }
  static NL_FN exec::Pack cell_by_cell(exec::Pack pack) {
    const std::uint32_t low = exec::low_half(pack), high = exec::high_half(pack);
    return exec::join_halves(low == 0xffffffffu ? exec::kNan32 : low,
                             high == 0xffffffffu ? exec::kNan32 : high);
  }
  static NL_FN Packet to_send(const Packet& packet) {
    return {{cell_by_cell(packet.pack[0]), cell_by_cell(packet.pack[1])}};
  }
  template <RegionView V>
  static NL_FN void send(const V& view, int peer, std::uint32_t slot, const Packet& packet,
                         std::uint32_t epoch) {
    sentinel_send(view, peer, slot, packet, epoch);  // [N1]
  }
  template <RegionView V>
  static NL_FN bool try_receive(const V& view, int source, std::uint32_t slot, std::uint32_t epoch,
                                Packet& got, std::uint32_t& seen) {
    seen = 0;
    return sentinel_try_receive<std::uint32_t>(view, source, slot, epoch, got);  // [N2]
  }
  // [N3]: the session's, which every advance_epoch() tells of.
  template <RegionView V>
  static NL_FN void reset(const V& view, int source, std::uint32_t slot, std::uint32_t epoch) {
    sentinel_reset_one(view, source, slot, epoch);
  }
};

// For the fault record: whose message is missing, of the ranks of `sources`, at `count` slots `step` apart.
template <class Carrier, RegionView V>
struct MessageMissing {
  V view;
  std::uint32_t sources, slot, step;
  int count;
  std::uint32_t epoch;

  NL_FN void operator()(FaultRecord& fault) const {
    fault.expected = fault.seen = epoch;
    for (int source = 0; source < view.nranks(); ++source) {
      if ((sources >> static_cast<std::uint32_t>(source) & 1u) == 0) continue;
      for (int i = 0; i < count; ++i) {
        typename Carrier::Packet packet;
        fault.slot = slot + static_cast<std::uint32_t>(i) * step;
        if (Carrier::try_receive(view, source, fault.slot, epoch, packet, fault.seen)) continue;
        fault.peer = source;
        return;
      }
    }
  }
};

template <RegionView V, class Carrier, exec::Coop C, bool kChecks>
class MessageChannel : public ChannelBase<V, C, kChecks, Carrier::kResets> {
 public:
  using Base = ChannelBase<V, C, kChecks, Carrier::kResets>;
  using Packet = typename Carrier::Packet;
  using Base::Base;
  // The number of ranks where it is a constant, else the most there can be.
  static constexpr int kMost = known_ranks<V>() > 0 ? known_ranks<V>() : kMaxRanks;
  using Held = LlSlot<kMost, V>;
  // Bytes of a message.
  static constexpr std::size_t kMostBytes = sizeof(Packet);

  // Slots of messages from each rank in an epoch.
  NL_FN std::uint32_t slots() const { return Carrier::capacity(this->view()); }

  // Sends `value` (trivially copyable, at most kMostBytes) to slot `slot` of rank `peer`; one thread. A slot
  // of a peer is written once in an epoch, by one thread. Never waits. False: nothing was sent.
  template <class T>
  NL_FN bool send(int peer, std::uint32_t slot, const T& value) {
    if (!this->may_write(peer, slot, slots())) return false;
    Carrier::send(this->view(), peer, slot, packet_of(value), this->epoch());
    return true;
  }

  // The same to every peer, in an order that differs from rank to rank. kMax: as recv_reduce's.
  template <int kMax = kMost, class T>
  NL_FN bool bcast(std::uint32_t slot, const T& value) {
    const Packet packet = packet_of(value);
    bool sent = true;
    NL_UNROLL
    for (int hop = 1; hop < kMax; ++hop) {
      if (hop >= this->nranks()) break;
      const int peer = rank_after(hop, this->view());
      if (!this->is_peer(peer)) continue;
      if (this->may_write(peer, slot, slots()))
        Carrier::send(this->view(), peer, slot, packet, this->epoch());
      else
        sent = false;
    }
    return sent && !this->failed();
  }

  // LL: a slot to be used in many epochs. bcast and recv_reduce take it in the place of a slot; where the
  // number of ranks is the constant 2, its addresses are then not worked out anew in every epoch. All other
  // ranks must be peers. Any thread.
  NL_FN Held hold(std::uint32_t slot) const requires(!Carrier::kResets) { return {this->view(), slot}; }
  template <class T>
  NL_FN bool bcast(const Held& held, const T& value) requires(!Carrier::kResets) {
    bool may = !this->failed();
    NL_UNROLL
    for (int i = 0; i < kMost - 1; ++i) {
      if (i >= this->nranks() - 1) break;
      may &= this->may_write(other_rank(i, this->rank()), held.slot(), slots());
    }
    if (may) held.broadcast(packet_of(value), this->epoch());
    return may;
  }

  // Waits for what rank `source` sends to this rank's slot `slot` in this epoch; one thread. A message is
  // received once (LL: any number of times). False, and `value` is as it was: the wait ended, and the record
  // says why and names `source`.
  template <class T>
  NL_FN bool recv(int source, std::uint32_t slot, T& value) {
    T one[1];
    if (!recv_unrolled(source, slot, 1, one)) return false;
    value = one[0];
    return true;
  }

  // The same for kCount slots, `step` apart from `slot` on: all of them are asked for at once.
  template <int kCount, class T>
  NL_FN bool recv_unrolled(int source, std::uint32_t slot, std::uint32_t step, T (&values)[kCount]) {
    const std::uint32_t last = slot + static_cast<std::uint32_t>(kCount - 1) * step;
    if (!this->may_use(source, last > slot ? last : slot, slots())) return false;
    const std::uint32_t epoch = this->epoch();
    Packet got[kCount];
    const auto attempt = [&] {
      bool all = true;
      NL_UNROLL
      for (int i = 0; i < kCount; ++i) {
        std::uint32_t seen;
        all &= Carrier::try_receive(this->view(), source, slot + static_cast<std::uint32_t>(i) * step, epoch,
                                    got[i], seen);
      }
      return all;
    };
    const MessageMissing<Carrier, V> blame{
        this->view(), 1u << static_cast<std::uint32_t>(source), slot, step, kCount, epoch};
    if (!this->wait(attempt, blame)) return false;
    this->note_heard(source);
    NL_UNROLL
    for (int i = 0; i < kCount; ++i) {
      Carrier::reset(this->view(), source, slot + static_cast<std::uint32_t>(i) * step, epoch);
      values[i] = value_of<T>(got[i]);
    }
    return true;
  }

  // op(...op(op(v0, v1), v2)...) over the values of all ranks in rank order, `own` in this rank's place: the
  // same bits on all ranks. All other ranks must be peers. kMax: a bound of the number of ranks that is known
  // when the kernel is compiled. One thread; kWholeWarps: all 32 threads of a warp together, each with a
  // slot, which polls faster (CPU: as without). False, and `result` is as it was: the wait ended.
  template <int kMax = kMost, bool kWholeWarps = false, class T, class Op>
  NL_FN bool recv_reduce(std::uint32_t slot, const T& own, const Op& op, T& result) {
    const int rank = this->rank(), nranks = this->nranks();
    return reduce_what_comes<kMax, kWholeWarps>(
        slot, own, op, result, [&](std::uint32_t epoch, Packet(&got)[kMax - 1]) {
          bool all = true;
          NL_UNROLL
          for (int i = 0; i < kMax - 1; ++i) {
            if (i >= nranks - 1) break;
            std::uint32_t seen;
            all &= Carrier::try_receive(this->view(), other_rank(i, rank), slot, epoch, got[i], seen);
          }
          return all;
        });
  }
  template <bool kWholeWarps = false, class T, class Op>
  NL_FN bool recv_reduce(const Held& held, const T& own, const Op& op,
                         T& result) requires(!Carrier::kResets) {
    return reduce_what_comes<kMost, kWholeWarps>(
        held.slot(), own, op, result,
        [&](std::uint32_t epoch, Packet(&got)[kMost - 1]) { return held.try_gather(epoch, got); });
  }

  // Drops the message that rank `source` has sent, or sends in this epoch, to slot `slot`: waits for it as
  // recv does. With Sentinel every message that was sent must be received or dropped in its epoch; a slot at
  // rest is what the next one is told from.
  NL_FN bool reset(int source, std::uint32_t slot) {
    Packet dropped;
    return recv(source, slot, dropped);
  }

 private:
  // `look`: one look at all messages of the epoch, true when they are there.
  template <int kMax, bool kWholeWarps, class T, class Op, class Look>
  NL_FN bool reduce_what_comes(std::uint32_t slot, const T& own, const Op& op, T& result, const Look& look) {
    const int rank = this->rank(), nranks = this->nranks();
    const std::uint32_t epoch = this->epoch();
    bool may = true;
    NL_UNROLL
    for (int i = 0; i < kMax - 1; ++i) {
      if (i >= nranks - 1) break;
      may &= this->may_use(other_rank(i, rank), slot, slots());
    }
    if constexpr (kWholeWarps) may = V::Space::all_in_lockstep(may);
    if (!may) return false;
    Packet got[kMax - 1];
    const auto attempt = [&] { return look(epoch, got); };
    const MessageMissing<Carrier, V> blame{this->view(), this->peer_mask(), slot, 0, 1, epoch};
    bool arrived;
    if constexpr (kWholeWarps) {
      arrived = this->wait_in_lockstep(attempt, blame);
    } else {
      arrived = this->wait(attempt, blame);
    }
    if (!arrived) return false;
    T sum = rank == 0 ? own : value_of<T>(got[0]);
    NL_UNROLL
    for (int i = 0; i < kMax - 1; ++i) {
      if (i >= nranks - 1) break;
      const int source = other_rank(i, rank);
      this->note_heard(source);
      Carrier::reset(this->view(), source, slot, epoch);
      if (rank != 0 && i + 1 == rank) {
        sum = i == 0 ? op(sum, own) : op(op(sum, value_of<T>(got[i])), own);
      } else if (rank == 0 || i > 0) {
        sum = op(sum, value_of<T>(got[i]));
      }
    }
    result = sum;
    return true;
  }

  template <class T>
  static NL_FN Packet packet_of(const T& value) {
    static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= kMostBytes);
    Packet packet{};
    memcpy(&packet, &value, sizeof(T));
    return Carrier::to_send(packet);
  }
  template <class T>
  static NL_FN T value_of(const Packet& packet) {
    static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= kMostBytes);
    T value;
    memcpy(&value, &packet, sizeof(T));
    return value;
  }
};

}  // namespace nearlight::protocol
