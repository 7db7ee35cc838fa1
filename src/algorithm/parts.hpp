// The collectives in which each rank has something of its own for each other one: parts of its input that go
// to parts of the others' outputs (all-gather, broadcast, all-to-all: moved; reduce-scatter, reduce: reduced
// where they arrive, in rank order). One hop by push, through scratch, in rounds of an epoch each.
//
// *Credits.* A bank may be written again once its reader has told that it is done, and the session's rule
// takes that from what every rank hears from every other in every epoch (E1). So a rank that has nothing for
// another one in a round sends it an empty unit all the same, in slot 0, and everybody waits for one unit at
// least from each other rank. What a rank hears of epoch e+1 tells that its sender has read all of epoch e:
// that is the credit, and a root or a sender with no part to receive cannot run ahead of it.
//
// Where no rank knows the largest part of all (all-to-all of uneven parts), each tells the others its own in
// the first round (agree_on_most).
//
// All of what says how many rounds there are (Parts::most, Parts::span, the groups) is the same on all ranks.
#pragma once

#include <cstdint>
#include <type_traits>

#include <nearlight/detail/exec/concepts.hpp>
#include <nearlight/detail/exec/fn.hpp>
#include <nearlight/detail/protocol/region.hpp>
#include <nearlight/detail/protocol/simple.hpp>
#include "algorithm/one_shot.hpp"
#include "algorithm/two_shot.hpp"

namespace nearlight::algorithm {

// In elements of the buffer that it lies in.
struct Piece {
  std::uint64_t at = 0, count = 0;
};

// What one rank gives and gets. What rank p gives to rank q has the count of what q gets from p; places are
// each rank's own. A reduction gets a part of one size from everybody, its own included.
struct Parts {
  Piece send[protocol::kMaxRanks];  // to that rank, in the input
  Piece recv[protocol::kMaxRanks];  // from that rank, in the output
  std::uint64_t most = 0;           // elements of the largest part of any rank
  std::uint32_t span = 0;           // units (of the protocol) of each part that a group takes in a round
};

// The part of one round: `here` of its units, from `base` on.
template <class Units, class Bufs>
NL_FN std::uint32_t units_here(const Bufs& part, std::uint64_t base, std::uint32_t span) {
  const std::uint64_t units = Units::count(part);
  const std::uint64_t left = units > base ? units - base : 0;
  return static_cast<std::uint32_t>(left < span ? left : span);
}
// With the empty unit where there is no other.
template <class Units>
NL_FN constexpr std::uint32_t one_at_least(std::uint32_t units) {
  return units > 0 ? units : Units::kLeast;
}

// For the fault record: who is missing at `slot`, of those that have one there.
template <class Units, int kMax, class V>
struct PartMissing {
  V view;
  std::uint32_t epoch, slot;
  std::uint32_t units[kMax - 1];  // from other_rank(i, rank), 1 at least

  NL_FN void operator()(protocol::FaultRecord& fault) const {
    fault.slot = slot;
    fault.expected = fault.seen = epoch;  // unless somebody is missing
    for (int i = 0; i < kMax - 1 && i < view.nranks() - 1; ++i) {
      const int source = protocol::other_rank(i, view.rank());
      std::uint32_t seen = 0;
      if (slot >= units[i] || Units::has_come(view, source, slot, epoch, seen)) continue;
      fault.peer = source;
      fault.seen = seen;
      return;
    }
  }
};

// Whether a thread's first unit for each other rank is loaded before anything depends on the epoch. Large
// ones for many ranks would take more registers than there are.
template <class Units, int kMax>
inline constexpr bool kLoadsFirst = kMax <= 2 || sizeof(typename Units::Unit) <= sizeof(exec::Pack);

// Sends this round's units of the part for each other rank; `first`: this thread's first one of each, where
// it was loaded before.
template <class Units, int kMax, class SessionT, class Bufs>
NL_FN void send_parts(SessionT& session, const Parts& parts, const Bufs& input, std::uint64_t base,
                      std::uint32_t epoch, const typename Units::Unit (&first)[kMax - 1]) {
  const auto& view = session.view();
  const auto lane = static_cast<std::uint32_t>(session.coop().thread_rank());
  const auto width = static_cast<std::uint32_t>(session.coop().size());
  NL_UNROLL
  for (int hop = 1; hop < kMax; ++hop) {
    if (hop >= view.nranks()) break;
    const int peer = protocol::rank_after(hop, view);
    const Bufs part = input.part(parts.send[peer].at, parts.send[peer].count);
    const std::uint32_t here = units_here<Units>(part, base, parts.span);
    // With none: the empty unit, in slot 0.
    if (lane < one_at_least<Units>(here)) {
      typename Units::Unit unit{};
      if constexpr (kLoadsFirst<Units, kMax>) {
        unit = first[hop - 1];
      } else if (lane < here) {
        unit = Units::load(part, base + lane);
      }
      Units::send(view, peer, lane, Units::to_send(unit), epoch);
    }
    for (std::uint32_t slot = lane + width; slot < here; slot += width)
      Units::send(view, peer, slot, Units::to_send(Units::load(part, base + slot)), epoch);
  }
}

template <class Units, int kMax, class V, class Bufs>
NL_FN void load_first(const V& view, const Parts& parts, const Bufs& input, std::uint64_t base,
                      std::uint32_t lane, typename Units::Unit (&first)[kMax - 1]) {
  NL_UNROLL
  for (int hop = 1; hop < kMax; ++hop) {
    first[hop - 1] = {};
    if (!kLoadsFirst<Units, kMax> || hop >= view.nranks()) continue;
    const Piece& to = parts.send[protocol::rank_after(hop, view)];
    const Bufs part = input.part(to.at, to.count);
    if (lane < units_here<Units>(part, base, parts.span)) first[hop - 1] = Units::load(part, base + lane);
  }
}

// One look at `slot` from each other rank that has one there: units[i] from other_rank(i, rank).
template <class Units, int kMax, class V>
NL_FN bool try_receive_parts(const V& view, const std::uint32_t (&units)[kMax - 1], std::uint32_t slot,
                             std::uint32_t epoch, typename Units::Unit (&got)[kMax - 1]) {
  bool all = true;
  NL_UNROLL
  for (int i = 0; i < kMax - 1; ++i) {
    if (i >= view.nranks() - 1) break;
    // Not one after the other: all the loads are in flight together.
    if (slot < units[i])
      all &= Units::try_receive(view, protocol::other_rank(i, view.rank()), slot, epoch, got[i]);
  }
  return all;
}

// Each rank's largest part, in units, to all others in slot `span` of the first round; the largest of all
// comes back, to every thread of the group. LL alone. 0 when a wait has failed.
template <int kMax, class SessionT>
NL_FN void tell_most(SessionT& session, std::uint32_t slot, std::uint64_t most, std::uint32_t epoch) {
  if (session.coop().thread_rank() == 0 && !session.failed())
    protocol::ll_broadcast<kMax>(session.view(), slot, most, epoch);
}
template <int kMax, class SessionT>
NL_FN std::uint64_t agree_on_most(SessionT& session, std::uint32_t slot, std::uint64_t most,
                                  std::uint32_t epoch) {
  using V = std::remove_cvref_t<decltype(session.view())>;
  const V& view = session.view();
  exec::Pack theirs[kMax - 1];
  NL_UNROLL
  for (int i = 0; i < kMax - 1; ++i) theirs[i] = 0;
  const bool arrived =
      session.wait_in_lockstep([&] { return protocol::ll_try_gather<kMax>(view, slot, epoch, theirs); },
                               protocol::LlMissing<V>{view, epoch, slot, slot, 0, 1});
  // All threads go on for as many rounds, or none does.
  (void)arrived;
  session.sync_failure();
  if (session.failed()) return 0;
  NL_UNROLL
  for (int i = 0; i < kMax - 1; ++i) most = theirs[i] > most ? theirs[i] : most;
  return most;
}

// Moves the parts. Input and output may be the same memory where each part's own place is the same, of
// all_to_all then all parts: a thread stores at the slots that it has itself sent from (lane + k * width of
// each part), behind its sends in program order, and other groups and rounds have other slots. The group need
// not meet for it: after the first round sync_while_in_flight() does not sync, and a thread stores while
// another one is still to load.
// kAgrees: Parts::most is this rank's own; LL, with a slot more than the span.
template <class Units, int kMax, bool kAgrees = false, class SessionT, class Bufs, class Hooks>
NL_FN void move_parts(SessionT& session, Share share, const Parts& parts, const Bufs& input,
                      const Bufs& output, const Hooks& hooks) {
  using Unit = typename Units::Unit;
  using V = std::remove_cvref_t<decltype(session.view())>;
  const V& view = session.view();
  const int rank = view.rank(), nranks = view.nranks();
  const auto lane = static_cast<std::uint32_t>(session.coop().thread_rank());
  const auto width = static_cast<std::uint32_t>(session.coop().size());
  constexpr auto kRun = static_cast<std::uint32_t>(V::Space::kLockstep);
  std::uint64_t most = Units::count(input.part(0, parts.most));
  bool agreed = !kAgrees;
  const Bufs own_in = input.part(parts.send[rank].at, parts.send[rank].count);
  const Bufs own_out = output.part(parts.recv[rank].at, parts.recv[rank].count);

  for (std::uint64_t base = std::uint64_t{share.index} * parts.span; base < most || !agreed;
       base += std::uint64_t{share.count} * parts.span) {
    Unit first[kMax - 1], got[kMax - 1];
    // Asked for before anything depends on the epoch: all loads are in flight together.
    load_first<Units, kMax>(view, parts, input, base, lane, first);
    const std::uint32_t epoch = session.begin_epoch();
    hooks.at(DelayPoint::before_publish);
    if (!session.failed()) send_parts<Units, kMax>(session, parts, input, base, epoch, first);
    if constexpr (kAgrees) {
      if (!agreed) tell_most<kMax>(session, parts.span, most, epoch);
    }
    session.sync_while_in_flight();
    hooks.at(DelayPoint::published);
    if (own_in.place() != own_out.place()) {
      const std::uint32_t here = units_here<Units>(own_in, base, parts.span);
      for (std::uint32_t slot = lane; slot < here; slot += width)
        Units::store(own_out, base + slot, Units::load(own_in, base + slot));
    }
    std::uint32_t units[kMax - 1], limit = 0;
    NL_UNROLL
    for (int i = 0; i < kMax - 1; ++i) {
      units[i] = 0;
      if (i >= nranks - 1) continue;
      const Piece& from = parts.recv[protocol::other_rank(i, rank)];
      units[i] = one_at_least<Units>(units_here<Units>(output.part(from.at, from.count), base, parts.span));
      if (units[i] > limit) limit = units[i];
    }
    // Threads in lockstep go through it together, with a slot or without.
    for (std::uint32_t run = lane / kRun * kRun; run < limit; run += width) {
      const std::uint32_t slot = run + lane % kRun;
      PartMissing<Units, kMax, V> blame{view, epoch, slot, {}};
      NL_UNROLL
      for (int i = 0; i < kMax - 1; ++i) blame.units[i] = units[i];
      const bool arrived = session.wait_in_lockstep(
          [&] { return try_receive_parts<Units, kMax>(view, units, slot, epoch, got); }, blame);
      if (!arrived) break;
      if (run == lane / kRun * kRun) hooks.at(DelayPoint::after_arrival);
      NL_UNROLL
      for (int i = 0; i < kMax - 1; ++i) {
        if (i >= nranks - 1) break;
        const int source = protocol::other_rank(i, rank);
        const Bufs part = output.part(parts.recv[source].at, parts.recv[source].count);
        // An empty unit is nothing to store.
        if (slot < units[i] && base + slot < Units::count(part)) Units::store(part, base + slot, got[i]);
        if (slot < units[i]) Units::reset(view, source, slot, epoch);
      }
    }
    if constexpr (kAgrees) {
      if (!agreed) most = agree_on_most<kMax>(session, parts.span, most, epoch);
      agreed = true;
    }
    if constexpr (Units::kResets) session.note_resets();
    hooks.at(DelayPoint::after_read);
    session.end_epoch();
  }
}

// Everybody's part for this rank, reduced in rank order into its part of the output, which may be where its
// own contribution lies. A rank that gets none (Parts::recv of count 0) takes part by empty units.
template <class Units, int kMax, class SessionT, class In, class Out, class Hooks, class Math>
NL_FN void reduce_parts(SessionT& session, Share share, const Parts& parts, const In& input,
                        const Out& output, const Hooks& hooks, const Math& math) {
  using Unit = typename Units::Unit;
  using V = std::remove_cvref_t<decltype(session.view())>;
  const V& view = session.view();
  const int rank = view.rank(), nranks = view.nranks();
  const auto lane = static_cast<std::uint32_t>(session.coop().thread_rank());
  const auto width = static_cast<std::uint32_t>(session.coop().size());
  constexpr auto kRun = static_cast<std::uint32_t>(V::Space::kLockstep);
  const std::uint64_t most = Units::count(input.part(0, parts.most));
  const In own_in = input.part(parts.send[rank].at, parts.send[rank].count);
  const Out own_out = output.part(parts.recv[rank].at, parts.recv[rank].count);

  for (std::uint64_t base = std::uint64_t{share.index} * parts.span; base < most;
       base += std::uint64_t{share.count} * parts.span) {
    const std::uint32_t here = units_here<Units>(own_out, base, parts.span);
    Unit first[kMax - 1], got[kMax - 1];
    load_first<Units, kMax>(view, parts, input, base, lane, first);
    const std::uint32_t epoch = session.begin_epoch();
    hooks.at(DelayPoint::before_publish);
    if (!session.failed()) send_parts<Units, kMax>(session, parts, input, base, epoch, first);
    session.sync_while_in_flight();
    hooks.at(DelayPoint::published);
    std::uint32_t units[kMax - 1];
    NL_UNROLL
    for (int i = 0; i < kMax - 1; ++i) units[i] = one_at_least<Units>(here);
    for (std::uint32_t run = lane / kRun * kRun; run < one_at_least<Units>(here); run += width) {
      const std::uint32_t slot = run + lane % kRun;
      Unit own{};
      if (slot < here) own = Units::load(own_in, base + slot);
      PartMissing<Units, kMax, V> blame{view, epoch, slot, {}};
      NL_UNROLL
      for (int i = 0; i < kMax - 1; ++i) blame.units[i] = units[i];
      const bool arrived = session.wait_in_lockstep(
          [&] { return try_receive_parts<Units, kMax>(view, units, slot, epoch, got); }, blame);
      if (!arrived) break;
      if (run == lane / kRun * kRun) hooks.at(DelayPoint::after_arrival);
      if (slot < here) {
        Units::store(own_out, base + slot, Units::template reduce<kMax>(math, own, got, rank, nranks));
      }
      if (slot < units[0]) {
        NL_UNROLL
        for (int i = 0; i < kMax - 1; ++i) {
          if (i < nranks - 1) Units::reset(view, protocol::other_rank(i, rank), slot, epoch);
        }
      }
    }
    if constexpr (Units::kResets) session.note_resets();
    hooks.at(DelayPoint::after_read);
    session.end_epoch();
  }
}

}  // namespace nearlight::algorithm
