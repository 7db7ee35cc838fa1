// One-shot AllReduce by packets without flags: as one_shot.hpp, with 16 bytes of payload where LL has 8.
//
// Sent: what SentinelCell<T>, `Rewrite` here, makes of a cell, so that none looks like the sentinel. The rank
// itself reduces its input as it is; the two differ only in which NaN an element is, and every result is the
// one NaN.
#pragma once

#include <cstdint>
#include <type_traits>

#include <nearlight/detail/exec/bits.hpp>
#include <nearlight/detail/exec/concepts.hpp>
#include <nearlight/detail/exec/fn.hpp>
#include <nearlight/detail/protocol/sentinel.hpp>
#include <nearlight/detail/protocol/session.hpp>
#include "algorithm/one_shot.hpp"
#include "algorithm/reduce.hpp"

namespace nearlight::algorithm {

template <class Rewrite>
NL_FN exec::Vec rewritten(const exec::Vec& vec) {
  exec::Vec sent;
  NL_UNROLL
  for (int half = 0; half < 2; ++half) {
    if constexpr (sizeof(typename Rewrite::Cell) == 8) {
      sent.pack[half] = Rewrite::to_send(vec.pack[half]);
    } else {
      sent.pack[half] = exec::join_halves(Rewrite::to_send(exec::low_half(vec.pack[half])),
                                          Rewrite::to_send(exec::high_half(vec.pack[half])));
    }
  }
  return sent;
}

template <int kMax, class Math>
NL_FN exec::Vec reduce_vecs(const Math& math, const exec::Vec& own, const exec::Vec (&got)[kMax - 1],
                            int rank, int nranks) {
  exec::Vec result;
  NL_UNROLL
  for (int half = 0; half < 2; ++half) {
    exec::Pack others[kMax - 1];
    NL_UNROLL
    for (int i = 0; i < kMax - 1; ++i) others[i] = got[i].pack[half];
    result.pack[half] = reduce_in_rank_order<Math, kMax>(math, own.pack[half], others, rank, nranks);
  }
  return result;
}

// Packets that a group sends in one round: what the group holds where that is enough for the whole message,
// else an even share, as far as the region goes. From what is the same on all ranks: a rank that can take the
// class below and one that cannot, because of its own addresses, must cut a message alike.
NL_HOST_FN constexpr std::uint32_t sentinel_span(std::uint64_t vecs, std::uint32_t groups, std::uint32_t held,
                                                 std::uint32_t packets) {
  if (held <= packets && vecs <= std::uint64_t{groups} * held) return held;
  // In whole runs of threads in lockstep (at most 32), see one_shot_sentinel_whole().
  const std::uint64_t even_share = ((vecs + groups - 1) / groups + 31) / 32 * 32;
  return even_share < packets ? static_cast<std::uint32_t>(even_share) : packets;
}

// Any message, any number of threads. A round covers as many packets as the region has; the input is read
// twice. `held`: as sentinel_span's; not what this group holds but what one with registers for it would, so
// that it may have fewer threads than another rank's.
template <class Math, class Rewrite, int kMax, class SessionT, class Bufs, class Hooks>
NL_FN void one_shot_sentinel(SessionT& session, Share share, std::uint32_t held, const Bufs& input,
                             const Bufs& output, const Hooks& hooks, const Math& math = {}) {
  using exec::Vec;
  using V = std::remove_cvref_t<decltype(session.view())>;
  using Cell = typename Rewrite::Cell;
  const V& view = session.view();
  const int rank = view.rank(), nranks = view.nranks();
  const auto lane = static_cast<std::uint32_t>(session.coop().thread_rank());
  const auto width = static_cast<std::uint32_t>(session.coop().size());
  const std::uint64_t vecs = input.vecs();
  const std::uint32_t span = sentinel_span(vecs, share.count, held, view.packets());

  for (std::uint64_t base = std::uint64_t{share.index} * span; base < vecs;
       base += std::uint64_t{share.count} * span) {
    const std::uint32_t here = vecs - base < span ? static_cast<std::uint32_t>(vecs - base) : span;
    const std::uint32_t epoch = session.begin_epoch();
    hooks.at(DelayPoint::before_publish);
    if (!session.failed()) {
      for (std::uint32_t index = lane; index < here; index += width) {
        protocol::sentinel_broadcast<kMax>(view, index, rewritten<Rewrite>(input.load_vec(base + index)),
                                           epoch);
      }
    }
    session.sync_while_in_flight();
    hooks.at(DelayPoint::published);
    for (std::uint32_t index = lane; index < here; index += width) {
      Vec got[kMax - 1];
      const bool arrived =
          session.wait([&] { return protocol::sentinel_try_gather<Cell, kMax>(view, index, epoch, got); },
                       protocol::SentinelMissing<Cell, V>{view, epoch, index, 0, 1});
      if (!arrived) break;
      if (index == lane) hooks.at(DelayPoint::after_arrival);
      protocol::sentinel_reset<kMax>(view, index, epoch);
      output.store_vec(base + index,
                       reduce_vecs<kMax>(math, input.load_vec(base + index), got, rank, nranks));
    }
    session.note_resets();
    hooks.at(DelayPoint::after_read);
    session.end_epoch();
  }
}

// kLot packets of a thread, all in flight together: `first`, first + width, ... of a round that begins at
// vector `base`.
template <class Math, class Rewrite, int kMax, int kLot, class SessionT, class Bufs>
NL_FN void sentinel_lot(SessionT& session, const Bufs& input, const Bufs& output, std::uint64_t base,
                        std::uint32_t first, std::uint32_t width, std::uint32_t epoch, const Math& math) {
  using exec::Vec;
  using V = std::remove_cvref_t<decltype(session.view())>;
  using S = typename V::Space;
  using Cell = typename Rewrite::Cell;
  const V& view = session.view();
  const auto index = [&](int i) { return first + static_cast<std::uint32_t>(i) * width; };
  const auto step = [&](int i) { return static_cast<std::uint64_t>(i) * width * sizeof(Vec); };
  const char* const from = input.vec_place(base + first);
  char* const to = output.vec_place(base + first);

  Vec own[kLot], got[kLot][kMax - 1];
  NL_UNROLL
  for (int i = 0; i < kLot; ++i) own[i] = S::load_vec(from + step(i));
  if (!session.failed()) {
    NL_UNROLL
    for (int i = 0; i < kLot; ++i) {
      protocol::sentinel_broadcast<kMax>(view, index(i), rewritten<Rewrite>(own[i]), epoch);
    }
  }
  session.wait_or_leave(
      [&] {
        bool all = true;
        NL_UNROLL
        for (int i = 0; i < kLot; ++i) {
          all &= protocol::sentinel_try_gather<Cell, kMax>(view, index(i), epoch, got[i]);
        }
        return all;
      },
      protocol::SentinelMissing<Cell, V>{view, epoch, first, width, kLot});
  NL_UNROLL
  for (int i = 0; i < kLot; ++i) {
    S::store_vec(to + step(i), reduce_vecs<kMax>(math, own[i], got[i], view.rank(), view.nranks()));
    protocol::sentinel_reset<kMax>(view, index(i), epoch);
  }
}

// Any message of whole vectors, at addresses that take them, in whole runs of threads in lockstep: a multiple
// of 32 vectors, the group's threads and the region's packets likewise. A thread has kAtOnce packets in
// flight to and from memory.
template <class Math, class Rewrite, int kMax, int kAtOnce, class SessionT, class Bufs, class Hooks>
NL_FN void one_shot_sentinel_whole(SessionT& session, Share share, std::uint32_t held, const Bufs& input,
                                   const Bufs& output, const Hooks& hooks, const Math& math = {}) {
  const auto lane = static_cast<std::uint32_t>(session.coop().thread_rank());
  const auto width = static_cast<std::uint32_t>(session.coop().size());
  const std::uint64_t vecs = input.vecs();
  const std::uint32_t span = sentinel_span(vecs, share.count, held, session.view().packets());
  session.sync_while_in_flight();  // here, before any thread may leave
  for (std::uint64_t base = std::uint64_t{share.index} * span; base < vecs;
       base += std::uint64_t{share.count} * span) {
    const std::uint32_t here = vecs - base < span ? static_cast<std::uint32_t>(vecs - base) : span;
    const std::uint32_t epoch = session.begin_epoch();
    hooks.at(DelayPoint::before_publish);
    std::uint32_t first = lane;
    const auto take = [&]<int kLot>(std::integral_constant<int, kLot>) {
      for (; first + width * (kLot - 1) < here; first += width * kLot)
        sentinel_lot<Math, Rewrite, kMax, kLot>(session, input, output, base, first, width, epoch, math);
    };
    take(std::integral_constant<int, kAtOnce>{});
    if constexpr (kAtOnce > 2) take(std::integral_constant<int, 2>{});
    if constexpr (kAtOnce > 1) take(std::integral_constant<int, 1>{});
    // Whoever missed something has left; a thread without packets has waited for nothing.
    if (lane < here) hooks.at(DelayPoint::after_arrival);
    session.note_resets();
    hooks.at(DelayPoint::after_read);
    session.end_epoch();
  }
}

// The message that fits one round of kHeld packets a thread, with both buffers in whole vectors throughout.
// With one packet no group and no run of threads in lockstep may be without; with more every thread has all
// of them. As OneShotLl with kFast, see there.
template <class Math, class Rewrite, int kMax, int kHeld, class V, class Bufs>
class OneShotSentinel {
 public:
  using Cell = typename Rewrite::Cell;

  NL_FN OneShotSentinel(const V& view, int lane, int width, Share share, const Bufs& input,
                        const Bufs& output)
      : view_(view), rank_(view.rank()), nranks_(view.nranks()), width_(static_cast<std::uint32_t>(width)) {
    const std::uint64_t base = std::uint64_t{share.index} * width_ * kHeld;
    index_ = static_cast<std::uint32_t>(lane);
    if constexpr (kHeld == 1) {
      // Threads past the end double the last packet, as in LL.
      const std::uint64_t left = input.vecs() - base;
      if (index_ >= left) index_ = static_cast<std::uint32_t>(left) - 1;
    }
    from_ = input.vec_place(base + index_);
    to_ = output.vec_place(base + index_);
    exec::keep(from_);
    exec::keep(to_);
    if constexpr (kMax == 2) {
      for (int bank = 0; bank < protocol::kBanks; ++bank) {
        sent_[bank] = &view.packet(1 - rank_, bank, rank_, index_);
        received_[bank] = &view.packet(rank_, bank, 1 - rank_, index_);
        exec::keep(sent_[bank]);
        exec::keep(received_[bank]);
      }
    }
  }

  // What it needs before it can start, for wait_for_previous_kernel().
  NL_FN std::uint64_t addresses() const {
    std::uint64_t all = exec::address_bits(from_) | exec::address_bits(to_);
    if constexpr (kMax == 2) {
      all |= exec::address_bits(sent_[0]) | exec::address_bits(sent_[1]) | exec::address_bits(received_[0]) |
             exec::address_bits(received_[1]);
    }
    return all;
  }

  template <class SessionT, class Hooks>
  NL_FN void run(SessionT& session, const Hooks& hooks, const Math& math = {}) const {
    using exec::Vec;
    using S = typename V::Space;
    Vec own[kHeld], got[kHeld][kMax - 1];
    NL_UNROLL
    for (int i = 0; i < kHeld; ++i) own[i] = S::load_vec(from_ + step(i));
    const std::uint32_t epoch = session.begin_epoch();
    const int bank = protocol::bank_of(epoch);
    hooks.at(DelayPoint::before_publish);
    typename S::Packet *sent = nullptr, *received = nullptr;
    if constexpr (kMax == 2) {
      sent = bank == 0 ? sent_[0] : sent_[1];
      received = bank == 0 ? received_[0] : received_[1];
    }
    if (!session.failed()) {
      NL_UNROLL
      for (int i = 0; i < kHeld; ++i) {
        if constexpr (kMax == 2) {
          S::store_packet(sent[places(i)], rewritten<Rewrite>(own[i]));  // [N1]
        } else {
          protocol::sentinel_broadcast<kMax>(view_, index_ + places(i), rewritten<Rewrite>(own[i]), epoch);
        }
      }
    }
    session.sync_while_in_flight();
    hooks.at(DelayPoint::published);
    session.wait_or_leave(
        [&] {
          bool all = true;
          NL_UNROLL
          for (int i = 0; i < kHeld; ++i) {
            if constexpr (kMax == 2) {
              got[i][0] = S::load_packet(received[places(i)]);  // [N2]
              all &= protocol::has_arrived<Cell>(got[i][0]);
            } else {
              all &= protocol::sentinel_try_gather<Cell, kMax>(view_, index_ + places(i), epoch, got[i]);
            }
          }
          return all;
        },
        protocol::SentinelMissing<Cell, V>{view_, epoch, index_, width_, kHeld});
    hooks.at(DelayPoint::after_arrival);
    NL_UNROLL
    for (int i = 0; i < kHeld; ++i) {
      S::store_vec(to_ + step(i), reduce_vecs<kMax>(math, own[i], got[i], rank_, nranks_));
      if constexpr (kMax == 2) {
        S::store_packet(received[places(i)], protocol::empty_packet());
      } else {
        protocol::sentinel_reset<kMax>(view_, index_ + places(i), epoch);
      }
    }
    session.note_resets();
    hooks.at(DelayPoint::after_read);
    session.end_epoch();
  }

 private:
  // From a thread's first packet to its i-th, in packets and in bytes.
  NL_FN std::uint32_t places(int i) const { return static_cast<std::uint32_t>(i) * width_; }
  NL_FN std::uint64_t step(int i) const { return std::uint64_t{places(i)} * sizeof(exec::Vec); }

  V view_;
  int rank_, nranks_;
  std::uint32_t width_, index_;
  char* from_;
  char* to_;
  typename V::Space::Packet* sent_[protocol::kBanks];
  typename V::Space::Packet* received_[protocol::kBanks];
};

}  // namespace nearlight::algorithm
