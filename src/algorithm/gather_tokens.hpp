// The AllGather in front of a product: each group gathers the tokens for itself, as it has the memory that
// its tiles are worked out from (algorithm/gemv.hpp). By the sentinel, in packets of the tokens' own type,
// the orderings being one_shot_sentinel's: [N1], [N2] a packet, [N3], [E1] between rounds. A failed thread
// neither sends nor waits.
#pragma once

#include <cstdint>
#include <type_traits>

#include <nearlight/detail/exec/concepts.hpp>
#include <nearlight/detail/exec/fn.hpp>
#include <nearlight/detail/protocol/sentinel.hpp>
#include <nearlight/detail/protocol/session.hpp>
#include "algorithm/gemv.hpp"
#include "algorithm/one_shot.hpp"
#include "algorithm/one_shot_sentinel.hpp"

namespace nearlight::algorithm {

// `gemv.input` is `tokens` rows of this rank's part of `gemv.in_vecs`, a part for each rank, all alike.
// put(token, vec, value): vector `vec` of the whole token, called once for each by one of the threads; a sync
// of the group has to follow before another thread may look.
template <class Rewrite, int kMax, class SessionT, class Put, class Hooks>
NL_FN void gather_tokens(SessionT& session, const Gemv& gemv, const Put& put, const Hooks& hooks) {
  using exec::Vec;
  using V = std::remove_cvref_t<decltype(session.view())>;
  using Cell = typename Rewrite::Cell;
  const V& view = session.view();
  const std::uint32_t part = gemv.in_vecs / static_cast<std::uint32_t>(view.nranks());
  const std::uint32_t all = gemv.tokens * part, span = view.packets();
  const auto lane = static_cast<std::uint32_t>(session.coop().thread_rank());
  const auto width = static_cast<std::uint32_t>(session.coop().size());
  constexpr auto kRun = static_cast<std::uint32_t>(V::Space::kLockstep);
  const auto put_of = [&](int source, std::uint32_t at, const Vec& value) {
    put(at / part, static_cast<std::uint32_t>(source) * part + at % part, value);
  };

  for (std::uint32_t first = 0; first < all; first += span) {
    const std::uint32_t here = all - first < span ? all - first : span;
    const std::uint32_t epoch = session.begin_epoch();
    hooks.at(DelayPoint::before_publish);
    for (std::uint32_t index = lane; index < here; index += width) {
      const std::uint32_t at = first + index;
      const Vec own =
          V::Space::load_vec(static_cast<const char*>(gemv.input) + std::uint64_t{at} * sizeof(Vec));
      if (!session.failed()) protocol::sentinel_broadcast<kMax>(view, index, rewritten<Rewrite>(own), epoch);
      put_of(view.rank(), at, own);
    }
    session.sync_while_in_flight();
    hooks.at(DelayPoint::published);
    for (std::uint32_t run = lane / kRun * kRun; run < here; run += width) {
      const std::uint32_t index = run + lane % kRun;
      const bool mine = index < here;
      Vec got[kMax - 1];
      const bool arrived = session.wait_in_lockstep(
          [&] { return !mine || protocol::sentinel_try_gather<Cell, kMax>(view, index, epoch, got); },
          protocol::SentinelMissing<Cell, V>{view, epoch, index, 0, mine ? 1 : 0});
      if (run == 0 && arrived) hooks.at(DelayPoint::after_arrival);
      if (!arrived || !mine) continue;
      protocol::sentinel_reset<kMax>(view, index, epoch);
      NL_UNROLL
      for (int i = 0; i < kMax - 1; ++i) {
        if (i >= view.nranks() - 1) break;
        put_of(protocol::other_rank(i, view.rank()), first + index, got[i]);
      }
    }
    session.note_resets();
    hooks.at(DelayPoint::after_read);
    session.end_epoch();
  }
}

}  // namespace nearlight::algorithm
