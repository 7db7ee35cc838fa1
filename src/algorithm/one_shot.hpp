// One-shot AllReduce: every rank pushes its whole input into every other's scratch and reduces all of them itself, in rank
// order, so all ranks hold the same bits. A message larger than the scratch goes in rounds, an epoch each, with no barrier
// between the ranks.
#pragma once

#include <cstdint>

#include "algorithm/buffer.hpp"
#include "algorithm/reduce.hpp"
#include <nearlight/detail/exec/concepts.hpp>
#include <nearlight/detail/exec/fn.hpp>
#include <nearlight/detail/protocol/ll.hpp>
#include <nearlight/detail/protocol/session.hpp>
#include <nearlight/detail/protocol/simple.hpp>

namespace nearlight::algorithm {

// Where a test may hold a thread up. The product uses NoDelay, which is nothing.
enum class DelayPoint : std::uint32_t { none = 0, before_publish = 1, after_arrival = 2, after_read = 3 };
struct NoDelay {
  NL_FN void at(DelayPoint) const {}
};
// Holds the calling thread at `point` for `ns` nanoseconds.
template <class S>
struct Delay {
  DelayPoint point = DelayPoint::none;
  std::uint64_t ns = 0;
  NL_FN void at(DelayPoint here) const {
    if (here != point || ns == 0) return;
    const std::uint64_t start = S::now_ns();
    while (S::now_ns() - start < ns) S::relax(0);
  }
};

// This group's part of the message: groups take turns, `index` of `count`.
struct Share {
  std::uint32_t index;
  std::uint32_t count;
};

// Reduces own and the others' contributions in rank order; got[i] is the one of other_rank(i, rank).
template <class Math, int kMax>
NL_FN exec::Pack reduce_in_rank_order(exec::Pack own, const exec::Pack (&got)[kMax - 1], int rank, int nranks) {
  typename Math::Acc acc = Math::open(rank == 0 ? own : got[0]);
  NL_UNROLL
  for (int source = 1; source < kMax; ++source) {
    if (source >= nranks) break;
    exec::Pack next = got[source - 1];
    if (source < kMax - 1 && source < rank) next = got[source];
    if (source == rank) next = own;
    Math::add(acc, next);
  }
  return Math::close(acc);
}

// kMax: bound of the number of ranks. kHeld: packs a thread keeps in registers; the group then covers size * kHeld slots a
// round. 0: as many slots as the region has, the input read twice (for groups of few threads).
template <class Math, int kMax, int kHeld, class SessionT, class In, class Out, class Hooks>
NL_FN void one_shot_ll(SessionT& session, Share share, const In& input, const Out& output, const Hooks& hooks) {
  using exec::Pack;
  const auto& view = session.view();
  const int rank = view.rank(), nranks = view.nranks();
  const auto lane = static_cast<std::uint32_t>(session.coop().thread_rank());
  const auto width = static_cast<std::uint32_t>(session.coop().size());
  const std::uint32_t span = kHeld > 0 ? width * static_cast<std::uint32_t>(kHeld) : view.slots();
  const std::uint64_t packs = input.packs();

  for (std::uint64_t base = std::uint64_t{share.index} * span; base < packs; base += std::uint64_t{share.count} * span) {
    const std::uint32_t here = packs - base < span ? static_cast<std::uint32_t>(packs - base) : span;
    if constexpr (kHeld > 0) {
      // The input is asked for before anything depends on the epoch: both loads are in flight together.
      Pack own[kHeld], got[kHeld][kMax - 1];
      NL_UNROLL
      for (int i = 0; i < kHeld; ++i) {
        const std::uint32_t slot = lane + static_cast<std::uint32_t>(i) * width;
        if (slot < here) own[i] = input.load_pack(base + slot);
      }
      const std::uint32_t epoch = session.begin_epoch();
      hooks.at(DelayPoint::before_publish);
      if (lane < here && !session.failed()) {
        NL_UNROLL
        for (int i = 0; i < kHeld; ++i) {
          const std::uint32_t slot = lane + static_cast<std::uint32_t>(i) * width;
          if (slot < here) protocol::ll_broadcast<kMax>(view, slot, own[i], epoch);
        }
        const bool arrived = session.wait(
            [&] {
              bool all = true;
              NL_UNROLL
              for (int i = 0; i < kHeld; ++i) {
                const std::uint32_t slot = lane + static_cast<std::uint32_t>(i) * width;
                if (slot < here) all &= protocol::ll_try_gather<kMax>(view, slot, epoch, got[i]);
              }
              return all;
            },
            [&](protocol::FaultRecord& fault) {
              fault.expected = epoch;
              for (fault.slot = lane; fault.slot < here; fault.slot += width) {
                fault.peer = protocol::ll_missing(view, fault.slot, epoch, fault.seen);
                if (fault.peer >= 0) break;
              }
            });
        hooks.at(DelayPoint::after_arrival);
        if (arrived) {
          NL_UNROLL
          for (int i = 0; i < kHeld; ++i) {
            const std::uint32_t slot = lane + static_cast<std::uint32_t>(i) * width;
            if (slot < here) {
              output.store_pack(base + slot, reduce_in_rank_order<Math, kMax>(own[i], got[i], rank, nranks));
            }
          }
        }
      }
    } else {
      const std::uint32_t epoch = session.begin_epoch();
      hooks.at(DelayPoint::before_publish);
      if (!session.failed()) {
        for (std::uint32_t slot = lane; slot < here; slot += width) {
          protocol::ll_broadcast<kMax>(view, slot, input.load_pack(base + slot), epoch);
        }
      }
      for (std::uint32_t slot = lane; slot < here; slot += width) {
        Pack got[kMax - 1];
        const bool arrived = session.wait([&] { return protocol::ll_try_gather<kMax>(view, slot, epoch, got); },
                                          [&](protocol::FaultRecord& fault) {
                                            fault.slot = slot;
                                            fault.expected = epoch;
                                            fault.peer = protocol::ll_missing(view, slot, epoch, fault.seen);
                                          });
        if (!arrived) break;
        if (slot == lane) hooks.at(DelayPoint::after_arrival);
        output.store_pack(base + slot,
                          reduce_in_rank_order<Math, kMax>(input.load_pack(base + slot), got, rank, nranks));
      }
    }
    hooks.at(DelayPoint::after_read);
  }
}

// Chunks of at most view.cells() vectors, one flag each; smaller ones where that lets every group work in the first round.
// kUnroll: vectors a thread has in flight.
template <class Math, int kMax, int kUnroll, class SessionT, class In, class Out, class Hooks>
NL_FN void one_shot_simple(SessionT& session, Share share, const In& input, const Out& output, const Hooks& hooks) {
  using exec::Pack;
  using exec::Vec;
  using S = typename SessionT::Space;
  const auto& view = session.view();
  const int rank = view.rank(), nranks = view.nranks();
  const auto lane = static_cast<std::uint32_t>(session.coop().thread_rank());
  const auto width = static_cast<std::uint32_t>(session.coop().size());
  const std::uint64_t vecs = input.vecs();
  const std::uint64_t even_share = (vecs + share.count - 1) / share.count;
  const std::uint32_t span = even_share < view.cells() ? static_cast<std::uint32_t>(even_share) : view.cells();

  for (std::uint64_t base = std::uint64_t{share.index} * span; base < vecs; base += std::uint64_t{share.count} * span) {
    const std::uint32_t here = vecs - base < span ? static_cast<std::uint32_t>(vecs - base) : span;
    const std::uint32_t epoch = session.begin_epoch();
    const int bank = protocol::bank_of(epoch);
    if (!session.failed()) {
      for (std::uint32_t first = lane; first < here; first += width * kUnroll) {
        Vec own[kUnroll];
        NL_UNROLL
        for (int i = 0; i < kUnroll; ++i) {
          const std::uint32_t cell = first + static_cast<std::uint32_t>(i) * width;
          if (cell < here) own[i] = input.load_vec(base + cell);
        }
        NL_UNROLL
        for (int i = 0; i < kUnroll; ++i) {
          const std::uint32_t cell = first + static_cast<std::uint32_t>(i) * width;
          if (cell < here) protocol::simple_broadcast_cell<kMax>(view, cell, own[i], epoch);
        }
      }
    }
    hooks.at(DelayPoint::before_publish);
    protocol::simple_publish(session, epoch);
    protocol::simple_observe(session, epoch, static_cast<std::uint32_t>(base / span));
    hooks.at(DelayPoint::after_arrival);
    if (!session.failed()) {
      for (std::uint32_t first = lane; first < here; first += width * kUnroll) {
        Vec own[kUnroll], got[kUnroll][kMax - 1];
        NL_UNROLL
        for (int i = 0; i < kUnroll; ++i) {
          const std::uint32_t cell = first + static_cast<std::uint32_t>(i) * width;
          if (cell >= here) continue;
          own[i] = input.load_vec(base + cell);
          NL_UNROLL
          for (int other = 0; other < kMax - 1; ++other) {
            if (other >= nranks - 1) break;
            got[i][other] = S::load_cell(view.cell(rank, bank, protocol::other_rank(other, rank), cell));
          }
        }
        NL_UNROLL
        for (int i = 0; i < kUnroll; ++i) {
          const std::uint32_t cell = first + static_cast<std::uint32_t>(i) * width;
          if (cell >= here) continue;
          Vec result;
          NL_UNROLL
          for (int half = 0; half < 2; ++half) {
            Pack others[kMax - 1];
            NL_UNROLL
            for (int other = 0; other < kMax - 1; ++other) others[other] = got[i][other].pack[half];
            result.pack[half] = reduce_in_rank_order<Math, kMax>(own[i].pack[half], others, rank, nranks);
          }
          output.store_vec(base + cell, result);
        }
      }
    }
    hooks.at(DelayPoint::after_read);
  }
}

}  // namespace nearlight::algorithm
