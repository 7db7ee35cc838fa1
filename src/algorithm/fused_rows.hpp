// One-shot AllReduce of rows, which are finished where they are reduced: what a row needs as a whole (the sum
// of its squares) is worked out by the threads that have it, and nothing of it leaves the GPU in between.
//
// By the sentinel (protocol/sentinel.hpp): a row is 2 KiB or more, and all types have NaNs. A team of groups
// has a row; each group has a region, an epoch a round, and the packets of its part of the rows in it. The
// orderings are one_shot_sentinel's: [N1], [N2] a packet, [N3], [E1] between rounds. A failed thread neither
// sends nor waits nor writes, but takes part in every sync and every sum of its team.
#pragma once

#include <cstdint>
#include <type_traits>

#include <nearlight/detail/exec/concepts.hpp>
#include <nearlight/detail/exec/fn.hpp>
#include <nearlight/detail/protocol/sentinel.hpp>
#include <nearlight/detail/protocol/session.hpp>
#include "algorithm/one_shot.hpp"
#include "algorithm/one_shot_sentinel.hpp"
#include "algorithm/row_finish.hpp"
#include "exec/team.hpp"

namespace nearlight::algorithm {

// A group's place: teams take turns at the rows, `team` of `teams`, and a row's vectors are cut into as many
// parts as a team has groups.
struct RowShare {
  std::uint32_t team, teams, part, parts;

  // Vectors of a part; the last may have fewer.
  NL_HOST_FN static constexpr std::uint32_t part_vecs(std::uint32_t vecs, std::uint32_t parts) {
    return (vecs + parts - 1) / parts;
  }
  NL_FN std::uint32_t first(std::uint32_t vecs) const { return part * part_vecs(vecs, parts); }
  NL_FN std::uint32_t here(std::uint32_t vecs) const {
    const std::uint32_t most = part_vecs(vecs, parts), begin = part * most;
    return begin >= vecs ? 0 : vecs - begin < most ? vecs - begin : most;
  }
};

// Rows that a group's threads hold in registers, kHeld vectors each, so size * kHeld are at least a part.
// kOnce: one row a team, in one round; else any number of rows, in rounds of FusedRows::at_once, for which
// the region has packets.
//
// As in OneShotSentinel, what depends neither on the epoch nor on the input is worked out on construction.
template <class Math, class Rewrite, int kMax, int kHeld, bool kOnce, class V, class Finish>
class HeldRows {
 public:
  using Cell = typename Rewrite::Cell;
  using Vec = exec::Vec;

  NL_FN HeldRows(const V& view, int lane, int width, const RowShare& share, const Finish& finish)
      : view_(view),
        finish_(finish),
        share_(share),
        lane_(static_cast<std::uint32_t>(lane)),
        width_(static_cast<std::uint32_t>(width)),
        first_(share.first(finish.rows().vecs)),
        here_(share.here(finish.rows().vecs)),
        part_(RowShare::part_vecs(finish.rows().vecs, share.parts)) {
    from_ = finish_.input_place(share_.team, first_ + lane_);
    exec::keep(from_);
    exec::keep(here_);
    if constexpr (kMax == 2 && kOnce) {
      for (int bank = 0; bank < protocol::kBanks; ++bank) {
        sent_[bank] = &view.packet(1 - view.rank(), bank, view.rank(), lane_);
        received_[bank] = &view.packet(view.rank(), bank, 1 - view.rank(), lane_);
        exec::keep(sent_[bank]);
        exec::keep(received_[bank]);
      }
    }
  }

  // What it needs before it can start, for wait_for_previous_kernel().
  NL_FN std::uint64_t addresses() const {
    std::uint64_t all = exec::address_bits(from_);
    if constexpr (kMax == 2 && kOnce) {
      all |= exec::address_bits(sent_[0]) | exec::address_bits(sent_[1]) | exec::address_bits(received_[0]) |
             exec::address_bits(received_[1]);
    }
    return all;
  }

  template <class SessionT, exec::Team Team, class Hooks>
  NL_FN void run(SessionT& session, Team& team, const Hooks& hooks) const {
    const FusedRows& rows = finish_.rows();
    Vec weight[kHeld], own[kHeld];
    if constexpr (kOnce) {
      // In flight together with the epoch.
      NL_UNROLL
      for (int i = 0; i < kHeld; ++i) {
        if (mine(i)) own[i] = V::Space::load_vec(from_ + std::uint64_t{places(i)} * sizeof(Vec));
      }
      const std::uint32_t epoch = session.begin_epoch();
      hooks.at(DelayPoint::before_publish);
      if (!session.failed()) {
        NL_UNROLL
        for (int i = 0; i < kHeld; ++i) {
          if (mine(i)) send(i, 0, own[i], epoch);
        }
      }
      load_weight(weight);
      receive(session, team, hooks, share_.team, 0, epoch, own, weight, finish_.load_inverse_scale());
      session.note_resets();
      hooks.at(DelayPoint::after_read);
      session.end_epoch();
    } else {
      load_weight(weight);
      const float inverse = finish_.load_inverse_scale();
      for (std::uint32_t first = share_.team; first < rows.rows; first += share_.teams * rows.at_once) {
        const std::uint32_t epoch = session.begin_epoch();
        hooks.at(DelayPoint::before_publish);
        std::uint32_t row = first;
        for (std::uint32_t turn = 0; turn < rows.at_once && row < rows.rows; ++turn, row += share_.teams) {
          load_own(row, own);
          if (session.failed()) continue;
          NL_UNROLL
          for (int i = 0; i < kHeld; ++i) {
            if (mine(i)) send(i, turn, own[i], epoch);
          }
        }
        row = first;
        for (std::uint32_t turn = 0; turn < rows.at_once && row < rows.rows; ++turn, row += share_.teams) {
          if (rows.at_once > 1) load_own(row, own);
          receive(session, team, hooks, row, turn, epoch, own, weight, inverse);
        }
        session.note_resets();
        hooks.at(DelayPoint::after_read);
        session.end_epoch();
      }
    }
  }

 private:
  // Vectors that are in flight to this thread together: bounded by the registers.
  static constexpr int kMostTogether = kMax <= 2 ? 4 : kMax <= 4 ? 2 : 1;
  static constexpr int kTogether = kHeld < kMostTogether ? kHeld : kMostTogether;
  // Else they are loaded anew for every row.
  static constexpr bool kKeepsWeight = kOnce || kMax <= 2;

  // From a thread's first vector to its i-th, and whether there is one.
  NL_FN std::uint32_t places(int i) const { return static_cast<std::uint32_t>(i) * width_; }
  NL_FN bool mine(int i) const { return lane_ + places(i) < here_; }
  NL_FN std::uint32_t packet(int i, std::uint32_t turn) const { return turn * part_ + lane_ + places(i); }

  NL_FN void load_own(std::uint32_t row, Vec (&own)[kHeld]) const {
    NL_UNROLL
    for (int i = 0; i < kHeld; ++i) {
      if (mine(i)) own[i] = finish_.load_input(row, first_ + lane_ + places(i));
    }
  }
  NL_FN void load_weight(Vec (&weight)[kHeld]) const {
    if constexpr (kKeepsWeight) {
      NL_UNROLL
      for (int i = 0; i < kHeld; ++i) {
        if (mine(i)) weight[i] = finish_.load_weight(first_ + lane_ + places(i));
      }
    }
  }
  NL_FN void send(int i, std::uint32_t turn, const Vec& own, std::uint32_t epoch) const {
    if constexpr (kMax == 2 && kOnce) {
      auto* const to = protocol::bank_of(epoch) == 0 ? sent_[0] : sent_[1];
      V::Space::store_packet(to[places(i)], rewritten<Rewrite>(own));  // [N1]
    } else {
      protocol::sentinel_broadcast<kMax>(view_, packet(i, turn), rewritten<Rewrite>(own), epoch);
    }
  }
  NL_FN bool try_gather(int i, std::uint32_t turn, std::uint32_t epoch, Vec (&got)[kMax - 1]) const {
    if constexpr (kMax == 2 && kOnce) {
      auto* const from = protocol::bank_of(epoch) == 0 ? received_[0] : received_[1];
      got[0] = V::Space::load_packet(from[places(i)]);  // [N2]
      return protocol::has_arrived<Cell>(got[0]);
    } else {
      return protocol::sentinel_try_gather<Cell, kMax>(view_, packet(i, turn), epoch, got);
    }
  }

  // One row: all of it that this thread has, to the end.
  template <class SessionT, class Team, class Hooks>
  NL_FN void receive(SessionT& session, Team& team, const Hooks& hooks, std::uint32_t row, std::uint32_t turn,
                     std::uint32_t epoch, const Vec (&own)[kHeld], const Vec (&weight)[kHeld],
                     float inverse) const {
    const Math math;
    Vec added[kTogether], sum[kHeld];
    typename Finish::Squares squares;
    const auto load_added = [&](int lot) {
      NL_UNROLL
      for (int i = 0; i < kTogether; ++i) {
        if (mine(lot + i)) added[i] = finish_.load_added(row, first_ + lane_ + places(lot + i));
      }
    };
    load_added(0);  // while the packets are on their way
    session.sync_while_in_flight();
    hooks.at(DelayPoint::published);
    bool arrived = true;
    NL_UNROLL
    for (int lot = 0; lot < kHeld; lot += kTogether) {
      if (lot > 0) load_added(lot);
      Vec got[kTogether][kMax - 1];
      int count = 0;
      NL_UNROLL
      for (int i = 0; i < kTogether; ++i) count += mine(lot + i) ? 1 : 0;
      arrived &= session.wait_in_lockstep(
          [&] {
            bool all = true;
            NL_UNROLL
            for (int i = 0; i < kTogether; ++i) {
              if (mine(lot + i)) all &= try_gather(lot + i, turn, epoch, got[i]);
            }
            return all;
          },
          protocol::SentinelMissing<Cell, V>{view_, epoch, packet(lot, turn), width_, count});
      if (!arrived) continue;
      NL_UNROLL
      for (int i = 0; i < kTogether; ++i) {
        if (!mine(lot + i)) continue;
        sum[lot + i] = finish_.add(
            reduce_vecs<kMax>(math, own[lot + i], got[i], view_.rank(), view_.nranks()), added[i], squares);
      }
    }
    if (arrived) hooks.at(DelayPoint::after_arrival);
    float root = 1;
    // The whole team, whoever has failed.
    if (finish_.rows().normalises) root = finish_.root_of(team.sum(squares.all()));
    if (!arrived) return;
    NL_UNROLL
    for (int i = 0; i < kHeld; ++i) {
      if (!mine(i)) continue;
      const std::uint32_t at = first_ + lane_ + places(i);
      if (finish_.rows().normalises) {
        const Vec by = kKeepsWeight ? weight[i] : finish_.load_weight(at);
        finish_.store_output(row, at, sum[i], by, {root, inverse});
      }
      finish_.store_sum(row, at, sum[i]);
      if constexpr (kMax == 2 && kOnce) {
        auto* const from = protocol::bank_of(epoch) == 0 ? received_[0] : received_[1];
        V::Space::store_packet(from[places(i)], protocol::empty_packet());
      } else {
        protocol::sentinel_reset<kMax>(view_, packet(i, turn), epoch);
      }
    }
  }

  V view_;
  Finish finish_;
  RowShare share_;
  std::uint32_t lane_, width_;
  std::uint32_t first_, here_, part_;  // vectors: of a row before this group's part, of it, of a whole part
  const char* from_;
  typename V::Space::Packet* sent_[protocol::kBanks];
  typename V::Space::Packet* received_[protocol::kBanks];
};

// Any rows, any number of threads, as few packets as may be: a row goes in rounds, and what is written of it
// (FusedRows::sum) is read again once it is whole.
template <class Math, class Rewrite, int kMax, class SessionT, exec::Team Team, class Finish, class Hooks>
NL_FN void streamed_rows(SessionT& session, Team& team, const RowShare& share, const Finish& finish,
                         const Hooks& hooks) {
  using exec::Vec;
  using V = std::remove_cvref_t<decltype(session.view())>;
  using Cell = typename Rewrite::Cell;
  const V& view = session.view();
  const FusedRows& rows = finish.rows();
  const Math math;
  const auto lane = static_cast<std::uint32_t>(session.coop().thread_rank());
  const auto width = static_cast<std::uint32_t>(session.coop().size());
  const std::uint32_t begin = share.first(rows.vecs), part = share.here(rows.vecs);
  // A sync in every session, also where no round has anything.
  session.sync_while_in_flight();
  for (std::uint32_t row = share.team; row < rows.rows; row += share.teams) {
    typename Finish::Squares squares;
    for (std::uint32_t base = 0; base < part; base += view.packets()) {
      const std::uint32_t here = part - base < view.packets() ? part - base : view.packets();
      const std::uint32_t epoch = session.begin_epoch();
      hooks.at(DelayPoint::before_publish);
      if (!session.failed()) {
        for (std::uint32_t index = lane; index < here; index += width) {
          protocol::sentinel_broadcast<kMax>(
              view, index, rewritten<Rewrite>(finish.load_input(row, begin + base + index)), epoch);
        }
      }
      hooks.at(DelayPoint::published);
      for (std::uint32_t index = lane; index < here; index += width) {
        const std::uint32_t at = begin + base + index;
        const Vec own = finish.load_input(row, at), added = finish.load_added(row, at);
        Vec got[kMax - 1];
        const bool arrived =
            session.wait([&] { return protocol::sentinel_try_gather<Cell, kMax>(view, index, epoch, got); },
                         protocol::SentinelMissing<Cell, V>{view, epoch, index, 0, 1});
        if (!arrived) break;
        if (index == lane) hooks.at(DelayPoint::after_arrival);
        protocol::sentinel_reset<kMax>(view, index, epoch);
        finish.store_sum(
            row, at,
            finish.add(reduce_vecs<kMax>(math, own, got, view.rank(), view.nranks()), added, squares));
      }
      session.note_resets();
      hooks.at(DelayPoint::after_read);
      session.end_epoch();
    }
    if (!rows.normalises) continue;
    const float root = finish.root_of(team.sum(squares.all()));
    if (session.failed()) continue;
    const float inverse = finish.load_inverse_scale();
    for (std::uint32_t index = lane; index < part; index += width) {
      const std::uint32_t at = begin + index;
      finish.store_output(row, at, finish.load_sum(row, at), finish.load_weight(at), {root, inverse});
    }
  }
}

}  // namespace nearlight::algorithm
