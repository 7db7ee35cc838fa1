// As parts.hpp, by plain stores of a chunk for each other rank and one flag to everybody: for large messages.
// The flags are the credits: a rank with nothing to send still publishes one.
#pragma once

#include <cstdint>
#include <type_traits>

#include <nearlight/detail/exec/concepts.hpp>
#include <nearlight/detail/exec/fn.hpp>
#include <nearlight/detail/protocol/simple.hpp>
#include "algorithm/one_shot.hpp"
#include "algorithm/parts.hpp"
#include "algorithm/reduce.hpp"

namespace nearlight::algorithm {

struct CellUnits {
  template <class Bufs>
  static NL_FN std::uint64_t count(const Bufs& buffer) {
    return buffer.vecs();
  }
};

// Of `here` cells from `base` of a part on: those that are whole in memory may go in bulk.
template <class Bulk, class Bufs>
NL_FN std::uint32_t cells_in_bulk(const Bulk& bulk, const Bufs& part, std::uint64_t base,
                                  std::uint32_t here) {
  if constexpr (Bulk::kUsed) {
    const std::uint64_t whole = bulk.usable() && part.whole_vecs() > base ? part.whole_vecs() - base : 0;
    return whole < here ? static_cast<std::uint32_t>(whole) : here;
  } else {
    return 0;
  }
}

// This round's cells of the part for each other rank, and the flags. kUnroll: vectors a thread has in flight.
template <int kUnroll, class SessionT, class Bufs, class Hooks, class Bulk>
NL_FN void publish_parts(SessionT& session, const Parts& parts, const Bufs& input, std::uint64_t base,
                         std::uint32_t epoch, const Hooks& hooks, const Bulk& bulk) {
  using exec::Vec;
  using S = typename SessionT::Space;
  const auto& view = session.view();
  const int bank = protocol::bank_of(epoch);
  const auto lane = static_cast<std::uint32_t>(session.coop().thread_rank());
  const auto width = static_cast<std::uint32_t>(session.coop().size());
  if (!session.failed()) {
    NL_NO_UNROLL
    for (int hop = 1; hop < view.nranks(); ++hop) {
      const int peer = protocol::rank_after(hop, view);
      const Bufs part = input.part(parts.send[peer].at, parts.send[peer].count);
      const std::uint32_t here = units_here<CellUnits>(part, base, parts.span);
      const std::uint32_t loose = cells_in_bulk(bulk, part, base, here);
      if constexpr (Bulk::kUsed) {
        if (loose > 0 && lane == 0)
          bulk.copy(&view.cell(peer, bank, view.rank(), 0), part.vec_place(base), loose);
      }
      for (std::uint32_t first = loose + lane; first < here; first += width * kUnroll) {
        Vec own[kUnroll];
        NL_UNROLL
        for (int i = 0; i < kUnroll; ++i) {
          const std::uint32_t cell = first + static_cast<std::uint32_t>(i) * width;
          if (cell < here) own[i] = part.load_vec(base + cell);
        }
        NL_UNROLL
        for (int i = 0; i < kUnroll; ++i) {
          const std::uint32_t cell = first + static_cast<std::uint32_t>(i) * width;
          if (cell < here) S::store_cell(view.cell(peer, bank, view.rank(), cell), own[i]);
        }
      }
    }
  }
  hooks.at(DelayPoint::before_publish);
  protocol::simple_publish(session, epoch);
  hooks.at(DelayPoint::published);
}

template <int kUnroll, class Bulk = NoBulk, class SessionT, class Bufs, class Hooks>
NL_FN void move_parts_simple(SessionT& session, Share share, const Parts& parts, const Bufs& input,
                             const Bufs& output, const Hooks& hooks, const Bulk& bulk = {}) {
  using exec::Vec;
  using S = typename SessionT::Space;
  const auto& view = session.view();
  const int rank = view.rank(), nranks = view.nranks();
  const auto lane = static_cast<std::uint32_t>(session.coop().thread_rank());
  const auto width = static_cast<std::uint32_t>(session.coop().size());
  const std::uint64_t most = input.part(0, parts.most).vecs();

  for (std::uint64_t base = std::uint64_t{share.index} * parts.span; base < most;
       base += std::uint64_t{share.count} * parts.span) {
    const std::uint32_t epoch = session.begin_epoch();
    const int bank = protocol::bank_of(epoch);
    publish_parts<kUnroll>(session, parts, input, base, epoch, hooks, bulk);
    protocol::simple_observe(session, epoch, static_cast<std::uint32_t>(base / parts.span));
    if (!session.failed()) {
      hooks.at(DelayPoint::after_arrival);
      NL_NO_UNROLL
      for (int hop = 0; hop < nranks; ++hop) {
        const int source = hop == 0 ? rank : protocol::rank_after(hop, view);
        const Bufs part = output.part(parts.recv[source].at, parts.recv[source].count);
        const Bufs own = input.part(parts.send[rank].at, parts.send[rank].count);
        if (source == rank && own.place() == part.place()) continue;
        const std::uint32_t here = units_here<CellUnits>(part, base, parts.span);
        const std::uint32_t loose = cells_in_bulk(bulk, part, base, here);
        if constexpr (Bulk::kUsed) {
          if (loose > 0 && lane == 0) {
            Bulk::copy_out(part.vec_place(base),
                           source == rank ? own.vec_place(base)
                                          : reinterpret_cast<const char*>(&view.cell(rank, bank, source, 0)),
                           loose);
          }
        }
        for (std::uint32_t first = loose + lane; first < here; first += width * kUnroll) {
          Vec got[kUnroll];
          NL_UNROLL
          for (int i = 0; i < kUnroll; ++i) {
            const std::uint32_t cell = first + static_cast<std::uint32_t>(i) * width;
            if (cell >= here) continue;
            got[i] = source == rank ? own.load_vec(base + cell)
                                    : S::load_cell(view.cell(rank, bank, source, cell));
          }
          NL_UNROLL
          for (int i = 0; i < kUnroll; ++i) {
            const std::uint32_t cell = first + static_cast<std::uint32_t>(i) * width;
            if (cell < here) part.store_vec(base + cell, got[i]);
          }
        }
      }
    }
    hooks.at(DelayPoint::after_read);
    session.end_epoch();
  }
}

template <int kMax, int kUnroll, class Bulk = NoBulk, class SessionT, class In, class Out, class Hooks,
          class Math>
NL_FN void reduce_parts_simple(SessionT& session, Share share, const Parts& parts, const In& input,
                               const Out& output, const Hooks& hooks, const Math& math,
                               const Bulk& bulk = {}) {
  using exec::Vec;
  using S = typename SessionT::Space;
  const auto& view = session.view();
  const int rank = view.rank(), nranks = view.nranks();
  const auto lane = static_cast<std::uint32_t>(session.coop().thread_rank());
  const auto width = static_cast<std::uint32_t>(session.coop().size());
  const std::uint64_t most = input.part(0, parts.most).vecs();
  const In own_in = input.part(parts.send[rank].at, parts.send[rank].count);
  const Out own_out = output.part(parts.recv[rank].at, parts.recv[rank].count);

  for (std::uint64_t base = std::uint64_t{share.index} * parts.span; base < most;
       base += std::uint64_t{share.count} * parts.span) {
    const std::uint32_t epoch = session.begin_epoch();
    const int bank = protocol::bank_of(epoch);
    publish_parts<kUnroll>(session, parts, input, base, epoch, hooks, bulk);
    protocol::simple_observe(session, epoch, static_cast<std::uint32_t>(base / parts.span));
    if (!session.failed()) {
      hooks.at(DelayPoint::after_arrival);
      const std::uint32_t here = units_here<CellUnits>(own_out, base, parts.span);
      const std::uint32_t loose = cells_in_bulk(bulk, own_out, base, here);
      if constexpr (Bulk::kUsed) {
        if (loose > 0 && lane == 0) {
          const char* sources[kMax];
          for (int of = 0; of < nranks; ++of) {
            sources[of] = of == rank ? own_in.vec_place(base)
                                     : reinterpret_cast<const char*>(&view.cell(rank, bank, of, 0));
          }
          bulk.reduce(own_out.vec_place(base), sources, nranks, std::size_t{loose} * sizeof(Vec));
        }
      }
      for (std::uint32_t cell = loose + lane; cell < here; cell += width) {
        Vec got[kMax - 1];
        NL_UNROLL
        for (int i = 0; i < kMax - 1; ++i) {
          if (i >= nranks - 1) break;
          got[i] = S::load_cell(view.cell(rank, bank, protocol::other_rank(i, rank), cell));
        }
        own_out.store_vec(base + cell,
                          reduce_vecs<kMax>(math, own_in.load_vec(base + cell), got, rank, nranks));
      }
    }
    hooks.at(DelayPoint::after_read);
    session.end_epoch();
  }
}

}  // namespace nearlight::algorithm
