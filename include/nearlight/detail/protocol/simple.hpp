// Simple: plain 16-byte stores of a chunk, then one release flag; full payload, one fence a chunk.
//
// Orderings: the group's stores of the chunk < sync < [S1] release store of the flag (system scope,
// cumulative over the sync) pairs with [S2] acquire load of that flag < sync < the group's plain loads of the
// chunk. Reuse: the session's rules (E1, and E3 where LL takes turns with this protocol).
#pragma once

#include <cstdint>
#include <type_traits>

#include <nearlight/detail/exec/concepts.hpp>
#include <nearlight/detail/exec/fn.hpp>
#include <nearlight/detail/protocol/epoch.hpp>
#include <nearlight/detail/protocol/region.hpp>
#include <nearlight/detail/protocol/session.hpp>

namespace nearlight::protocol {

// Stores one cell into every other rank's bank of `epoch`.
template <int kMax, RegionView V>
NL_FN void simple_broadcast_cell(const V& view, std::uint32_t index, const exec::Vec& value,
                                 std::uint32_t epoch) {
  NL_UNROLL
  for (int hop = 1; hop < kMax; ++hop) {
    if (hop >= view.nranks()) break;
    int peer = view.rank() + hop;
    if (peer >= view.nranks()) peer -= view.nranks();
    V::Space::store_cell(view.cell(peer, bank_of(epoch), view.rank(), index), value);
  }
}

// After all threads have stored their cells: tells every other rank that the chunk of `epoch` is there.
template <class SessionT>
NL_FN void simple_publish(SessionT& session, std::uint32_t epoch) {
  using V = std::remove_cvref_t<decltype(session.view())>;
  const V& view = session.view();
  session.coop().sync();
  if (session.failed()) return;
  for (int peer = session.coop().thread_rank(); peer < view.nranks(); peer += session.coop().size()) {
    if (peer == view.rank()) continue;
    V::Space::template store<exec::Order::release, exec::Scope::system>(  // [S1]
        view.flag(peer, bank_of(epoch), view.rank()), epoch);
  }
}

// For the fault record: `source` has not published `epoch`; nobody is named if it has by now.
template <class S>
struct SimpleMissing {
  typename S::Word& flag;
  int source;
  std::uint32_t epoch;
  std::uint32_t chunk;

  NL_FN void operator()(FaultRecord& fault) const {
    fault.slot = chunk;
    fault.expected = epoch;
    fault.seen = S::template load<exec::Order::relaxed, exec::Scope::system>(flag);
    if (fault.seen != epoch) fault.peer = source;
  }
};

// Waits for every other rank's chunk of `epoch`. `chunk` is the index in the message, for the fault record.
// After it all threads of the group may load the cells, or all of them have failed: then nobody loads, and
// nobody publishes the next chunk, of which this group would have stored a part only.
template <class SessionT>
NL_FN void simple_observe(SessionT& session, std::uint32_t epoch, std::uint32_t chunk) {
  using V = std::remove_cvref_t<decltype(session.view())>;
  using S = typename V::Space;
  const V& view = session.view();
  for (int source = session.coop().thread_rank(); source < view.nranks(); source += session.coop().size()) {
    if (source == view.rank()) continue;
    auto& flag = view.flag(view.rank(), bank_of(epoch), source);
    session.wait(
        [&] { return S::template load<exec::Order::acquire, exec::Scope::system>(flag) == epoch; },  // [S2]
        SimpleMissing<S>{flag, source, epoch, chunk});
  }
  session.sync_failure();  // [F2]
}

}  // namespace nearlight::protocol
