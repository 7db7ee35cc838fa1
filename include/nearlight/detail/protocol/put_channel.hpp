// Channels of put, signal and wait: plain 16-byte stores into a peer's cells, then one flag.
//
// Orderings: the group's puts < sync < [S1] release store of the flag (system scope) pairs with [S2] acquire
// load of it < sync < the group's gets. They cover whatever the group has stored before, not the cells alone.
#pragma once

#include <cstdint>

#include <nearlight/detail/protocol/channel_base.hpp>

namespace nearlight::protocol {

template <RegionView V, exec::Coop C, bool kChecks>
class PutChannel : public ChannelBase<V, C, kChecks, false> {
 public:
  using Base = ChannelBase<V, C, kChecks, false>;
  using Base::Base;

  // 16-byte cells that each rank may write in an epoch.
  NL_FN std::uint32_t cells() const { return this->view().cells(); }

  // Stores 16 bytes into cell `cell` of rank `peer`; one thread, once a cell and epoch. Nobody may load them
  // before a signal. False: nothing was stored.
  NL_FN bool put(int peer, std::uint32_t cell, const exec::Vec& value) {
    if (!this->may_write(peer, cell, cells())) return false;
    V::Space::store_cell(this->view().cell(peer, bank_of(this->epoch()), this->rank(), cell), value);
    return true;
  }

  // Tells rank `peer` that everything which the group has stored in this epoch is there. All threads of the
  // group call it, once a peer and epoch. False: nobody was told.
  NL_FN bool signal(int peer) {
    if (!this->may_use(peer, 0, 1)) return this->all_well();
    return this->publish(1u << static_cast<std::uint32_t>(peer));
  }

  // Waits for rank `source`'s signal of this epoch. All threads call it, and all of them get the same answer.
  // False: the wait ended, and the record names `source`; nothing may be loaded.
  NL_FN bool wait_signal(int source) {
    if (!this->may_use(source, 0, 1)) return this->all_well();
    return this->observe(1u << static_cast<std::uint32_t>(source), 0);
  }

  // What rank `source` has put into this rank's cell, after its signal and before the epoch ends; one thread.
  // After a failure, zeros.
  NL_FN exec::Vec get(int source, std::uint32_t cell) {
    if (!this->may_use(source, cell, cells())) return {};
    return V::Space::load_cell(this->view().cell(this->rank(), bank_of(this->epoch()), source, cell));
  }
};

}  // namespace nearlight::protocol
