// One-shot AllReduce by wide lines: as one_shot.hpp, with 120 bytes of payload in 128 where LL has 60.
//
// A unit is what the threads in lockstep move in one access: a warp's four lines. The last one of a message
// may reach past its end; there a buffer reads as zeros and is not written, so that no warp ever stores or
// loads a part of its lines.
#pragma once

#include <cstdint>
#include <type_traits>

#include <nearlight/detail/exec/concepts.hpp>
#include <nearlight/detail/exec/fn.hpp>
#include <nearlight/detail/protocol/ll128.hpp>
#include <nearlight/detail/protocol/session.hpp>
#include "algorithm/one_shot.hpp"
#include "algorithm/reduce.hpp"

namespace nearlight::algorithm {

// A thread's place in the group, for work that goes by units: its run of threads in lockstep, and its part in
// each of the run's units.
template <class S>
struct LineWorker {
  using Seat = protocol::LineSeat<S>;
  Seat seat;
  std::uint32_t run, runs;

  NL_FN LineWorker(std::uint32_t lane, std::uint32_t width)
      : seat(lane), run(lane / S::kLockstep), runs((width + S::kLockstep - 1) / S::kLockstep) {}

  template <class Bufs>
  static NL_FN std::uint64_t units(const Bufs& buffer) {
    return (buffer.packs() + Seat::kUnitPacks - 1) / Seat::kUnitPacks;
  }
  // This thread's part of a unit of the message; where the word goes, anything.
  template <class Bufs>
  NL_FN typename Seat::Part load(const Bufs& input, std::uint64_t unit) const {
    typename Seat::Part part;
    NL_UNROLL
    for (int i = 0; i < Seat::kPartPacks; ++i) {
      part.pack[i] = 0;
      if (seat.is_payload(i)) part.pack[i] = input.load_pack(place(input, unit, i));
    }
    return part;
  }
  template <class Bufs>
  NL_FN void store(const Bufs& output, std::uint64_t unit, const typename Seat::Part& part) const {
    NL_UNROLL
    for (int i = 0; i < Seat::kPartPacks; ++i) {
      if (seat.is_payload(i)) output.store_pack(place(output, unit, i), part.pack[i]);
    }
  }

 private:
  template <class Bufs>
  NL_FN auto place(const Bufs& buffer, std::uint64_t unit, int i) const {
    return buffer.place_of_pack(unit * Seat::kUnitPacks + seat.pack(i));
  }
};

// Any message, any number of threads (whole runs of those in lockstep). All units of a round are sent before
// the first is waited for; the input is read twice, the second time while the others' lines are on their way.
template <class Math, int kMax, class SessionT, class Bufs, class Hooks>
NL_FN void one_shot_ll128(SessionT& session, Share share, const Bufs& input, const Bufs& output,
                          const Hooks& hooks, const Math& math = {}) {
  using V = std::remove_cvref_t<decltype(session.view())>;
  using S = typename V::Space;
  using Seat = protocol::LineSeat<S>;
  using Part = typename Seat::Part;
  using Missing = protocol::Ll128Missing<V, Seat>;
  const V& view = session.view();
  const int rank = view.rank(), nranks = view.nranks();
  const LineWorker<S> worker(static_cast<std::uint32_t>(session.coop().thread_rank()),
                             static_cast<std::uint32_t>(session.coop().size()));
  const std::uint64_t units = worker.units(input);
  const std::uint64_t even_share = (units + share.count - 1) / share.count;
  const std::uint32_t room = view.wide_lines() / Seat::kUnitLines;
  const std::uint32_t span = even_share < room ? static_cast<std::uint32_t>(even_share) : room;

  for (std::uint64_t base = std::uint64_t{share.index} * span; base < units;
       base += std::uint64_t{share.count} * span) {
    const std::uint32_t here = units - base < span ? static_cast<std::uint32_t>(units - base) : span;
    const std::uint32_t epoch = session.begin_epoch();
    hooks.at(DelayPoint::before_publish);
    // All threads in lockstep or none: a part of a warp would tear its lines.
    if (S::all_in_lockstep(!session.failed())) {
      for (std::uint32_t unit = worker.run; unit < here; unit += worker.runs) {
        protocol::ll128_broadcast<kMax>(view, unit, worker.seat, worker.load(input, base + unit), epoch);
      }
    }
    session.sync_while_in_flight();
    hooks.at(DelayPoint::published);
    for (std::uint32_t unit = worker.run; unit < here; unit += worker.runs) {
      const Part own = worker.load(input, base + unit);
      Part got[kMax - 1];
      const bool arrived = session.wait_in_lockstep(
          [&] { return protocol::ll128_try_gather<kMax>(view, unit, worker.seat, epoch, got); },
          Missing{view, worker.seat, epoch, unit, -1});
      if (!arrived) break;
      if (unit == worker.run) hooks.at(DelayPoint::after_arrival);
      Part result;
      NL_UNROLL
      for (int i = 0; i < Seat::kPartPacks; ++i) {
        exec::Pack others[kMax - 1];
        NL_UNROLL
        for (int other = 0; other < kMax - 1; ++other) others[other] = got[other].pack[i];
        result.pack[i] = reduce_in_rank_order<Math, kMax>(math, own.pack[i], others, rank, nranks);
      }
      worker.store(output, base + unit, result);
    }
    hooks.at(DelayPoint::after_read);
    session.end_epoch();
  }
}

}  // namespace nearlight::algorithm
