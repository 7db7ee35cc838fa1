// Two-shot AllReduce by sums that are added to from afar: each rank owns a part of the message, everyone adds
// its contribution to the owner's sum, line by line (protocol/ll128.hpp), and the owner sends what they come
// to to everyone, as LL128 lines. An owner reads one line where two_shot.hpp reads one of each rank; the
// order of adding is the order of arrival, so two runs may differ in the last bits. All ranks of a run have
// the same bits: they are the owner's.
//
// Both ways are one epoch, and line i of a sum is line i of the result: what the owner's threads hold is what
// they send. The owner puts a sum to rest in the epoch in which it was read ([A3], note_resets).
#pragma once

#include <cstdint>
#include <type_traits>

#include <nearlight/detail/exec/bits.hpp>
#include <nearlight/detail/exec/concepts.hpp>
#include <nearlight/detail/exec/fn.hpp>
#include <nearlight/detail/protocol/ll128.hpp>
#include <nearlight/detail/protocol/session.hpp>
#include "algorithm/one_shot.hpp"
#include "algorithm/one_shot_ll128.hpp"
#include "algorithm/reduce.hpp"
#include "algorithm/two_shot.hpp"

namespace nearlight::algorithm {

// What is made of a sum of T's: nothing, or the average. The adders' NaNs become the one of all results.
template <class S, class T>
struct LineSum {
  static constexpr exec::Adds kAdds = std::is_same_v<T, float> ? exec::Adds::f32
                                      : std::is_same_v<T, F16> ? exec::Adds::f16
                                                               : exec::Adds::bf16;
  static_assert(std::is_same_v<T, float> || std::is_same_v<T, F16> || std::is_same_v<T, Bf16>);
  bool average;

  NL_FN exec::Pack close(exec::Pack sum, int nranks) const {
    using L = Lanes<S, T>;
    float value[L::kPerPack];
    L::widen(sum, value);
    NL_UNROLL
    for (int i = 0; i < L::kPerPack; ++i) {
      if (average) value[i] = S::divide(value[i], static_cast<float>(nranks));
      if (value[i] != value[i]) value[i] = exec::as_float(exec::kNan32);
    }
    return L::narrow(value);
  }
};

// Any message that can be cut (route::two_shot_fits), any number of threads (whole runs of those in
// lockstep).
template <class SessionT, class Bufs, class Hooks, class Sum>
NL_FN void two_shot_atomic(SessionT& session, Share share, const Bufs& input, const Bufs& output,
                           const Hooks& hooks, const Sum& sum) {
  using V = std::remove_cvref_t<decltype(session.view())>;
  using S = typename V::Space;
  using Seat = protocol::LineSeat<S>;
  using Part = typename Seat::Part;
  constexpr exec::Adds kAdds = Sum::kAdds;
  const V& view = session.view();
  const int rank = view.rank(), nranks = view.nranks();
  const auto ranks = static_cast<std::uint32_t>(nranks);
  const LineWorker<S> worker(static_cast<std::uint32_t>(session.coop().thread_rank()),
                             static_cast<std::uint32_t>(session.coop().size()));
  const Seat& seat = worker.seat;
  const std::uint32_t lines = view.wide_lines() < view.sum_lines() ? view.wide_lines() : view.sum_lines();
  const std::uint64_t all = worker.units(input), enough = all / ranks;
  const std::uint32_t groups = share.count < enough ? share.count : static_cast<std::uint32_t>(enough);
  if (share.index >= groups) return;
  const Range mine = even_part(all, groups, share.index);
  const std::uint64_t most = std::uint64_t{lines / Seat::kUnitLines} * ranks;
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
    // All threads in lockstep or none, see one_shot_ll128().
    if (S::all_in_lockstep(!session.failed())) {
      NL_NO_UNROLL
      for (int hop = 1; hop <= nranks; ++hop) {  // the own part last
        const int owner = hop < nranks ? protocol::rank_after(hop, view) : rank;
        const Range part = part_of(owner);
        for (std::uint32_t unit = worker.run; unit < part.size; unit += worker.runs)
          protocol::sum_add<kAdds>(view, owner, unit, seat, worker.load(input, part.begin + unit), epoch);
      }
    }
    session.sync_while_in_flight();
    hooks.at(DelayPoint::published);

    const Range own = part_of(rank);
    for (std::uint32_t unit = worker.run; unit < own.size; unit += worker.runs) {
      Part got;
      const bool arrived = session.wait_in_lockstep(
          [&] { return protocol::sum_try_take<kAdds>(view, unit, seat, epoch, got); },
          protocol::SumMissing<kAdds, V, Seat>{view, seat, epoch, unit});
      if (!arrived) break;
      if (unit == worker.run) hooks.at(DelayPoint::after_arrival);
      NL_UNROLL
      for (int i = 0; i < Seat::kPartPacks; ++i) got.pack[i] = sum.close(got.pack[i], nranks);
      NL_NO_UNROLL
      for (int hop = 1; hop < nranks; ++hop)
        protocol::ll128_send(view, protocol::rank_after(hop, view), unit, seat, got, epoch);
      worker.store(output, own.begin + unit, got);
      protocol::sum_zero(view, unit, seat, epoch);
    }

    NL_NO_UNROLL
    for (int hop = 1; hop < nranks; ++hop) {
      const int owner = protocol::rank_after(hop, view);
      const Range part = part_of(owner);
      for (std::uint32_t unit = worker.run; unit < part.size; unit += worker.runs) {
        Part got;
        const bool arrived = session.wait_in_lockstep(
            [&] { return protocol::ll128_try_receive(view, owner, unit, seat, epoch, got); },
            protocol::Ll128Missing<V, Seat>{view, seat, epoch, unit, owner});
        if (!arrived) break;
        worker.store(output, part.begin + unit, got);
      }
    }
    session.note_resets();
    hooks.at(DelayPoint::after_read);
    session.end_epoch();
  }
}

}  // namespace nearlight::algorithm
