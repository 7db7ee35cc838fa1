// One-shot AllReduce: every rank pushes its whole input into every other's scratch and reduces all of them
// itself, in rank order, so all ranks hold the same bits. A message larger than the scratch goes in rounds,
// an epoch each, with no barrier between the ranks.
#pragma once

#include <cstdint>
#include <type_traits>

#include <nearlight/detail/exec/concepts.hpp>
#include <nearlight/detail/exec/fn.hpp>
#include <nearlight/detail/protocol/ll.hpp>
#include <nearlight/detail/protocol/session.hpp>
#include <nearlight/detail/protocol/simple.hpp>
#include "algorithm/buffer.hpp"
#include "algorithm/reduce.hpp"

namespace nearlight::algorithm {

// Where a test may hold a thread up, and a trace takes the time. The product uses NoDelay, which is nothing.
// A thread comes to `after_arrival` only where what it waited for is there.
enum class DelayPoint : std::uint32_t {
  none = 0,
  before_publish = 1,
  after_arrival = 2,
  after_read = 3,
  published = 4
};
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

// The LL kind. kMax: bound of the number of ranks. kHeld: packs a thread keeps in registers; the group then
// covers size * kHeld slots a round.
//
// kFast: the message fits the slots of all groups together (one round), both buffers take whole packs
// throughout, and no group and no run of threads in lockstep is without a pack. Then there is no loop and
// hardly a branch.
//
// Everything that does not depend on the epoch or on the input is worked out on construction: a kernel does
// that while the one before it still runs, and only then opens its session.
template <class Math, int kMax, int kHeld, bool kFast, class V, class Bufs>
class OneShotLl {
 public:
  static_assert(kHeld == 1 || (kHeld > 1 && !kFast));

  // `first_slot`: the slot of the message's first pack; the slots from there on must suffice for width *
  // kHeld packs.
  NL_FN OneShotLl(const V& view, int lane, int width, Share share, const Bufs& input, const Bufs& output,
                  std::uint32_t first_slot = 0, const Math& math = {})
      : view_(view),
        first_slot_(first_slot),
        rank_(view.rank()),
        nranks_(view.nranks()),
        lane_(static_cast<std::uint32_t>(lane)),
        width_(static_cast<std::uint32_t>(width)),
        span_(width_ * static_cast<std::uint32_t>(kHeld)),
        stride_(std::uint64_t{share.count} * span_),
        packs_(input.packs()),
        base_(std::uint64_t{share.index} * span_),
        input_(input),
        output_(output),
        math_(math),
        slot_(view, 0) {
    place();
  }

  // What the first round needs before it can start, for wait_for_previous_kernel().
  NL_FN std::uint64_t addresses() const {
    return slot_.addresses() | exec::address_bits(from_.at) | exec::address_bits(to_.at);
  }

  // The whole message. May be called again: nothing of the object changes. kWraps false: the session is known
  // to be far from the wrap.
  template <bool kWraps = true, class SessionT, class Hooks>
  NL_FN void run(SessionT& session, const Hooks& hooks) const {
    if (kFast || here_ != 0) round<kWraps>(session, hooks);
    if constexpr (!kFast) {
      OneShotLl next = *this;
      for (std::uint64_t base = base_ + stride_; base < packs_; base += stride_) {
        next.base_ = base;
        next.place();
        next.template round<kWraps>(session, hooks);
      }
    }
  }

 private:
  // Where this thread's packs of the round lie.
  NL_FN void place() {
    here_ =
        packs_ > base_ ? (packs_ - base_ < span_ ? static_cast<std::uint32_t>(packs_ - base_) : span_) : 0;
    active_ = kFast || takes_part(0) ? 1 : 0;
    from_ = input_.place_of_pack(base_ + slot(0));
    to_ = output_.place_of_pack(base_ + slot(0));
    slot_ = protocol::LlSlot<kMax, V>(view_, first_slot_ + slot(0));
    if constexpr (!kFast) {
      exec::keep(here_);
      exec::keep(active_);
    }
    exec::keep(from_.at);
    exec::keep(from_.elements);
    exec::keep(to_.at);
    exec::keep(to_.elements);
  }
  // The slot of this thread's i-th pack. Where the message ends within a run of threads in lockstep, those
  // past the end double the last pack: they send, wait for and write what their neighbour does, at the same
  // places, in the same instruction. A warp that is whole is faster than one with idle threads.
  NL_FN std::uint32_t slot(int i) const {
    const std::uint32_t own = lane_ + static_cast<std::uint32_t>(i) * width_;
    return own < here_ ? own : here_ - 1;
  }
  // Whether any thread in lockstep with this one has an i-th pack.
  NL_FN bool takes_part(int i) const {
    constexpr auto kRun = static_cast<std::uint32_t>(V::Space::kLockstep);
    return lane_ / kRun * kRun + static_cast<std::uint32_t>(i) * width_ < here_;
  }

  template <bool kWraps, class SessionT, class Hooks>
  NL_FN void round(SessionT& session, const Hooks& hooks) const {
    using exec::Pack;
    const auto& view = session.view();
    Pack own[kHeld], got[kHeld][kMax - 1];
    const bool active = kFast || active_ != 0;
    // Asked for before anything depends on the epoch: both loads are in flight together.
    if (active) own[0] = kFast ? V::Space::load_pack(from_.at) : input_.load_pack(from_);
    NL_UNROLL
    for (int i = 1; i < kHeld; ++i) {
      if (takes_part(i)) own[i] = input_.load_pack(input_.place_of_pack(base_ + slot(i)));
    }
    const std::uint32_t epoch = session.begin_epoch();
    hooks.at(DelayPoint::before_publish);
    if (active && !session.failed()) {
      slot_.broadcast(own[0], epoch);
      NL_UNROLL
      for (int i = 1; i < kHeld; ++i) {
        if (takes_part(i)) protocol::ll_broadcast<kMax>(view, first_slot_ + slot(i), own[i], epoch);
      }
    }
    session.sync_while_in_flight();
    hooks.at(DelayPoint::published);
    if (active) {
      const auto attempt = [&] {
        bool all = slot_.try_gather(epoch, got[0]);
        NL_UNROLL
        for (int i = 1; i < kHeld; ++i) {
          if (takes_part(i)) all &= protocol::ll_try_gather<kMax>(view, first_slot_ + slot(i), epoch, got[i]);
        }
        return all;
      };
      const protocol::LlMissing<V> blame{view,   epoch, first_slot_ + here_ - 1, first_slot_ + lane_,
                                         width_, kHeld};
      bool arrived = true;
      if constexpr (kFast) {
        session.wait_or_leave(attempt, blame);
      } else {
        arrived = session.wait_in_lockstep(attempt, blame);
      }
      if (arrived) {
        hooks.at(DelayPoint::after_arrival);
        const Pack result = reduce_in_rank_order<Math, kMax>(math_, own[0], got[0], rank_, nranks_);
        if constexpr (kFast) {
          V::Space::store_pack(to_.at, result);
        } else {
          output_.store_pack(to_, result);
        }
        NL_UNROLL
        for (int i = 1; i < kHeld; ++i) {
          if (takes_part(i)) {
            output_.store_pack(output_.place_of_pack(base_ + slot(i)),
                               reduce_in_rank_order<Math, kMax>(math_, own[i], got[i], rank_, nranks_));
          }
        }
      }
    }
    hooks.at(DelayPoint::after_read);
    if constexpr (kWraps) session.end_epoch();
  }

  V view_;
  std::uint32_t first_slot_;
  int rank_, nranks_;
  std::uint32_t lane_, width_, span_;
  std::uint64_t stride_, packs_, base_;
  Bufs input_, output_;
  [[no_unique_address]] Math math_;
  protocol::LlSlot<kMax, V> slot_;
  std::uint32_t here_;    // slots of this round
  std::uint32_t active_;  // this thread has one of them, or doubles one
  typename Bufs::Place from_, to_;
};

// The LL kind for groups of few threads: a round covers as many slots as the region has, and the input is
// read twice.
template <class Math, int kMax, class SessionT, class Bufs, class Hooks>
NL_FN void one_shot_ll_streamed(SessionT& session, Share share, const Bufs& input, const Bufs& output,
                                const Hooks& hooks, const Math& math) {
  using exec::Pack;
  using V = std::remove_cvref_t<decltype(session.view())>;
  const V& view = session.view();
  const int rank = view.rank(), nranks = view.nranks();
  const auto lane = static_cast<std::uint32_t>(session.coop().thread_rank());
  const auto width = static_cast<std::uint32_t>(session.coop().size());
  const std::uint32_t span = view.slots();
  const std::uint64_t packs = input.packs();

  for (std::uint64_t base = std::uint64_t{share.index} * span; base < packs;
       base += std::uint64_t{share.count} * span) {
    const std::uint32_t here = packs - base < span ? static_cast<std::uint32_t>(packs - base) : span;
    const std::uint32_t epoch = session.begin_epoch();
    hooks.at(DelayPoint::before_publish);
    if (!session.failed()) {
      for (std::uint32_t slot = lane; slot < here; slot += width) {
        protocol::ll_broadcast<kMax>(view, slot, input.load_pack(input.place_of_pack(base + slot)), epoch);
      }
    }
    session.sync_while_in_flight();
    hooks.at(DelayPoint::published);
    for (std::uint32_t slot = lane; slot < here; slot += width) {
      Pack got[kMax - 1];
      const bool arrived = session.wait([&] { return protocol::ll_try_gather<kMax>(view, slot, epoch, got); },
                                        protocol::LlMissing<V>{view, epoch, slot, slot, 0, 1});
      if (!arrived) break;
      if (slot == lane) hooks.at(DelayPoint::after_arrival);
      const Pack own = input.load_pack(input.place_of_pack(base + slot));
      output.store_pack(output.place_of_pack(base + slot),
                        reduce_in_rank_order<Math, kMax>(math, own, got, rank, nranks));
    }
    hooks.at(DelayPoint::after_read);
    session.end_epoch();
  }
}

// kHeld 0: streamed.
template <class Math, int kMax, int kHeld, class SessionT, class Bufs, class Hooks>
NL_FN void one_shot_ll(SessionT& session, Share share, const Bufs& input, const Bufs& output,
                       const Hooks& hooks, const Math& math = {}) {
  if constexpr (kHeld == 0) {
    one_shot_ll_streamed<Math, kMax>(session, share, input, output, hooks, math);
  } else {
    using V = std::remove_cvref_t<decltype(session.view())>;
    OneShotLl<Math, kMax, kHeld, false, V, Bufs> work(session.view(), session.coop().thread_rank(),
                                                      session.coop().size(), share, input, output, 0, math);
    work.run(session, hooks);
  }
}

// What one_shot_simple may use instead of its loops where a space has better means for long runs than cell by
// cell (see algorithm/host/bulk.hpp): copy() and reduce(), where usable() says that this call may. Here:
// nothing.
struct NoBulk {
  static constexpr bool kUsed = false;
};

// Chunks of at most view.cells() vectors, one flag each; smaller ones where that lets every group work in the
// first round. kUnroll: vectors a thread has in flight.
template <class Math, int kMax, int kUnroll, class Bulk = NoBulk, class SessionT, class Bufs, class Hooks>
NL_FN void one_shot_simple(SessionT& session, Share share, const Bufs& input, const Bufs& output,
                           const Hooks& hooks, const Math& math = {}, const Bulk& bulk = {}) {
  using exec::Pack;
  using exec::Vec;
  using S = typename SessionT::Space;
  const auto& view = session.view();
  const int rank = view.rank(), nranks = view.nranks();
  const auto lane = static_cast<std::uint32_t>(session.coop().thread_rank());
  const auto width = static_cast<std::uint32_t>(session.coop().size());
  const std::uint64_t vecs = input.vecs();
  const std::uint64_t even_share = (vecs + share.count - 1) / share.count;
  const std::uint32_t span =
      even_share < view.cells() ? static_cast<std::uint32_t>(even_share) : view.cells();

  for (std::uint64_t base = std::uint64_t{share.index} * span; base < vecs;
       base += std::uint64_t{share.count} * span) {
    const std::uint32_t here = vecs - base < span ? static_cast<std::uint32_t>(vecs - base) : span;
    const std::uint32_t epoch = session.begin_epoch();
    const int bank = protocol::bank_of(epoch);
    // The cells [run_first, run_end) are this thread's in bulk; all threads share those from `loose` on.
    std::uint32_t loose = 0, run_first = 0, run_end = 0;
    if constexpr (Bulk::kUsed) {
      const std::uint64_t whole = bulk.usable() && input.whole_vecs() > base ? input.whole_vecs() - base : 0;
      loose = whole < here ? static_cast<std::uint32_t>(whole) : here;
      run_first = static_cast<std::uint32_t>(std::uint64_t{loose} * lane / width);
      run_end = static_cast<std::uint32_t>(std::uint64_t{loose} * (lane + 1) / width);
    }
    if (!session.failed()) {
      if constexpr (Bulk::kUsed) {
        if (run_first < run_end) {
          for (int other = 0; other < nranks - 1; ++other) {
            const int peer = protocol::other_rank(other, rank);
            bulk.copy(&view.cell(peer, bank, rank, run_first), input.vec_place(base + run_first),
                      run_end - run_first);
          }
        }
      }
      for (std::uint32_t first = loose + lane; first < here; first += width * kUnroll) {
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
    hooks.at(DelayPoint::published);
    protocol::simple_observe(session, epoch, static_cast<std::uint32_t>(base / span));
    if (!session.failed()) {
      hooks.at(DelayPoint::after_arrival);
      if constexpr (Bulk::kUsed) {
        if (run_first < run_end) {
          const char* sources[kMax];
          for (int of = 0; of < nranks; ++of) {
            sources[of] = of == rank ? input.vec_place(base + run_first)
                                     : reinterpret_cast<const char*>(&view.cell(rank, bank, of, run_first));
          }
          bulk.reduce(output.vec_place(base + run_first), sources, nranks,
                      (run_end - run_first) * sizeof(Vec));
        }
      }
      for (std::uint32_t first = loose + lane; first < here; first += width * kUnroll) {
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
            result.pack[half] =
                reduce_in_rank_order<Math, kMax>(math, own[i].pack[half], others, rank, nranks);
          }
          output.store_vec(base + cell, result);
        }
      }
    }
    hooks.at(DelayPoint::after_read);
    session.end_epoch();
  }
}

}  // namespace nearlight::algorithm
