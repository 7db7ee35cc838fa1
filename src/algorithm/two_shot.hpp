// Two-shot AllReduce by push: each rank owns a part of the message. Everyone sends the owner its contribution
// (reduce-scatter), the owner reduces them in rank order and sends the result to everyone (all-gather). A
// rank sends 2 (n-1)/n of the message where one-shot sends n-1 of it, for one way more in time. Neither
// buffer has to be symmetric: both ways end in scratch.
//
// Both ways are one epoch. Contributions take the lower half of a source's slots, results the upper half, so
// a rank that is quick sends its results while another still reads contributions. Every rank owns something
// of every round, so in every epoch every rank hears from every other (the session's rule): an owner has the
// contributions of all.
//
// A unit is what travels in one piece: 8 bytes with LL, 16 with the sentinel.
#pragma once

#include <cstdint>
#include <type_traits>

#include <nearlight/detail/exec/concepts.hpp>
#include <nearlight/detail/exec/fn.hpp>
#include <nearlight/detail/protocol/ll.hpp>
#include <nearlight/detail/protocol/sentinel.hpp>
#include <nearlight/detail/protocol/session.hpp>
#include "algorithm/one_shot.hpp"
#include "algorithm/one_shot_sentinel.hpp"
#include "algorithm/reduce.hpp"

namespace nearlight::algorithm {

// How a unit travels.
struct LlUnits {
  using Unit = exec::Pack;
  static constexpr bool kResets = false;
  // Of a part (parts.hpp), however small: who has heard nothing has no credit.
  static constexpr std::uint32_t kLeast = 1;

  template <class Bufs>
  static NL_FN std::uint64_t count(const Bufs& buffer) {
    return buffer.packs();
  }
  template <class Bufs>
  static NL_FN Unit load(const Bufs& buffer, std::uint64_t index) {
    return buffer.load_pack(buffer.place_of_pack(index));
  }
  template <class Bufs>
  static NL_FN void store(const Bufs& buffer, std::uint64_t index, Unit unit) {
    buffer.store_pack(buffer.place_of_pack(index), unit);
  }
  template <class V>
  static NL_FN std::uint32_t slots(const V& view) {
    return view.slots();
  }
  static NL_FN Unit to_send(Unit unit) { return unit; }
  template <class V>
  static NL_FN void send(const V& view, int peer, std::uint32_t slot, Unit unit, std::uint32_t epoch) {
    protocol::ll_send(view, peer, slot, unit, epoch);
  }
  template <class V>
  static NL_FN bool try_receive(const V& view, int source, std::uint32_t slot, std::uint32_t epoch,
                                Unit& unit) {
    return protocol::ll_try_receive(view, source, slot, epoch, unit);
  }
  // For the fault record: `seen` is the epoch of what is there.
  template <class V>
  static NL_FN bool has_come(const V& view, int source, std::uint32_t slot, std::uint32_t epoch,
                             std::uint32_t& seen) {
    Unit unit;
    return V::Space::try_load_line(view.line(view.rank(), protocol::bank_of(epoch), source, slot), epoch,
                                   unit, seen);
  }
  template <class V>
  static NL_FN void reset(const V&, int, std::uint32_t, std::uint32_t) {}
  template <int kMax, class Math>
  static NL_FN Unit reduce(const Math& math, Unit own, const Unit (&got)[kMax - 1], int rank, int nranks) {
    return reduce_in_rank_order<Math, kMax>(math, own, got, rank, nranks);
  }
};

template <class Rewrite>
struct SentinelUnits {
  using Unit = exec::Vec;
  static constexpr bool kResets = true;
  static constexpr std::uint32_t kLeast = 1;

  template <class Bufs>
  static NL_FN std::uint64_t count(const Bufs& buffer) {
    return buffer.vecs();
  }
  template <class Bufs>
  static NL_FN Unit load(const Bufs& buffer, std::uint64_t index) {
    return buffer.load_vec(index);
  }
  template <class Bufs>
  static NL_FN void store(const Bufs& buffer, std::uint64_t index, const Unit& unit) {
    buffer.store_vec(index, unit);
  }
  template <class V>
  static NL_FN std::uint32_t slots(const V& view) {
    return view.packets();
  }
  // Contributions alone: no result looks like the sentinel, there is one NaN for all of them.
  static NL_FN Unit to_send(const Unit& unit) { return rewritten<Rewrite>(unit); }
  template <class V>
  static NL_FN void send(const V& view, int peer, std::uint32_t slot, const Unit& unit, std::uint32_t epoch) {
    protocol::sentinel_send(view, peer, slot, unit, epoch);
  }
  template <class V>
  static NL_FN bool try_receive(const V& view, int source, std::uint32_t slot, std::uint32_t epoch,
                                Unit& unit) {
    return protocol::sentinel_try_receive<typename Rewrite::Cell>(view, source, slot, epoch, unit);
  }
  template <class V>
  static NL_FN bool has_come(const V& view, int source, std::uint32_t slot, std::uint32_t epoch,
                             std::uint32_t& seen) {
    seen = 0;  // it has no number
    Unit unit;
    return try_receive(view, source, slot, epoch, unit);
  }
  template <class V>
  static NL_FN void reset(const V& view, int source, std::uint32_t slot, std::uint32_t epoch) {
    protocol::sentinel_reset_one(view, source, slot, epoch);
  }
  template <int kMax, class Math>
  static NL_FN Unit reduce(const Math& math, const Unit& own, const Unit (&got)[kMax - 1], int rank,
                           int nranks) {
    return reduce_vecs<kMax>(math, own, got, rank, nranks);
  }
};

// For the fault record: who is missing at `slot`, of `source` alone or (-1) of all others.
template <class Units, class V>
struct UnitMissing {
  V view;
  std::uint32_t epoch, slot;
  int source;

  NL_FN void operator()(protocol::FaultRecord& fault) const {
    fault.slot = slot;
    fault.expected = fault.seen = epoch;  // unless somebody is missing
    for (int one = 0; one < view.nranks(); ++one) {
      if (one == view.rank() || (source >= 0 && one != source)) continue;
      std::uint32_t seen = 0;
      if (Units::has_come(view, one, slot, epoch, seen)) continue;
      fault.peer = one;
      fault.seen = seen;
      return;
    }
  }
};

struct Range {
  std::uint64_t begin, size;
};
// Part `index` of `parts` of `total` things; sizes differ by one at most.
NL_HOST_FN constexpr Range even_part(std::uint64_t total, std::uint64_t parts, std::uint64_t index) {
  const std::uint64_t each = total / parts, left = total % parts;
  return {each * index + (index < left ? index : left), each + (index < left ? 1 : 0)};
}

// Any message that can be cut (route::two_shot_fits), any number of threads.
template <class Units, int kMax, class SessionT, class In, class Out, class Hooks, class Math>
NL_FN void two_shot(SessionT& session, Share share, const In& input, const Out& output, const Hooks& hooks,
                    const Math& math) {
  using Unit = typename Units::Unit;
  using V = std::remove_cvref_t<decltype(session.view())>;
  using Missing = UnitMissing<Units, V>;
  const V& view = session.view();
  const int rank = view.rank(), nranks = view.nranks();
  const auto ranks = static_cast<std::uint32_t>(nranks);
  const auto lane = static_cast<std::uint32_t>(session.coop().thread_rank());
  const auto width = static_cast<std::uint32_t>(session.coop().size());
  const std::uint32_t half = Units::slots(view) / 2;
  const std::uint64_t all = Units::count(input), enough = all / ranks;
  const std::uint32_t groups = share.count < enough ? share.count : static_cast<std::uint32_t>(enough);
  if (share.index >= groups) return;
  const Range mine = even_part(all, groups, share.index);
  const std::uint64_t most = std::uint64_t{half} * ranks;
  const std::uint64_t rounds = (mine.size + most - 1) / most;

  for (std::uint64_t round = 0; round < rounds; ++round) {
    const Range here = even_part(mine.size, rounds, round);
    const std::uint64_t begin = mine.begin + here.begin;
    const auto part_of = [&](int owner) {
      const Range part = even_part(here.size, ranks, static_cast<std::uint64_t>(owner));
      return Range{begin + part.begin, part.size};
    };
    const std::uint32_t epoch = session.begin_epoch();
    hooks.at(DelayPoint::before_publish);
    if (!session.failed()) {
      for (int hop = 1; hop < nranks; ++hop) {
        const int owner = protocol::rank_after(hop, view);
        const Range part = part_of(owner);
        for (std::uint32_t slot = lane; slot < part.size; slot += width)
          Units::send(view, owner, slot, Units::to_send(Units::load(input, part.begin + slot)), epoch);
      }
    }
    session.sync_while_in_flight();
    hooks.at(DelayPoint::published);

    const Range own = part_of(rank);
    for (std::uint32_t slot = lane; slot < own.size; slot += width) {
      Unit got[kMax - 1];
      const bool arrived = session.wait(
          [&] {
            bool there = true;
            NL_UNROLL
            for (int i = 0; i < kMax - 1; ++i) {
              if (i >= nranks - 1) break;
              // Not short-circuited: all the loads are in flight together.
              there &= Units::try_receive(view, protocol::other_rank(i, rank), slot, epoch, got[i]);
            }
            return there;
          },
          Missing{view, epoch, slot, -1});
      if (!arrived) break;
      if (slot == lane) hooks.at(DelayPoint::after_arrival);
      const Unit result =
          Units::template reduce<kMax>(math, Units::load(input, own.begin + slot), got, rank, nranks);
      // Loops rather than as many copies as there may be ranks: the registers are taken by the contributions.
      NL_NO_UNROLL
      for (int hop = 1; hop < nranks; ++hop)
        Units::send(view, protocol::rank_after(hop, view), half + slot, result, epoch);
      Units::store(output, own.begin + slot, result);
      NL_NO_UNROLL
      for (int hop = 1; hop < nranks; ++hop) Units::reset(view, protocol::rank_after(hop, view), slot, epoch);
    }

    for (int hop = 1; hop < nranks; ++hop) {
      const int owner = protocol::rank_after(hop, view);
      const Range part = part_of(owner);
      for (std::uint32_t slot = lane; slot < part.size; slot += width) {
        Unit got;
        if (!session.wait([&] { return Units::try_receive(view, owner, half + slot, epoch, got); },
                          Missing{view, epoch, half + slot, owner})) {
          break;
        }
        Units::store(output, part.begin + slot, got);
        Units::reset(view, owner, half + slot, epoch);
      }
    }
    if constexpr (Units::kResets) session.note_resets();
    hooks.at(DelayPoint::after_read);
    session.end_epoch();
  }
}

}  // namespace nearlight::algorithm
