// The CPU as an execution space in which a test can lose or spoil what a rank sends. Only calls with test
// hooks run in it: the others' stores know nothing of this.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include <nearlight/detail/exec/host_space.hpp>
#include <nearlight/detail/protocol/fault.hpp>
#include "algorithm/host/bulk.hpp"

namespace nearlight::algorithm::host {

// What happens to one of the things that a rank sends in a call: `index` counts them from 0, in the order in
// which they are stored for the others. They are lines (LL, LL128), packets (sentinel), what is added to
// sums, and in simple the runs of cells, cells and flags.
struct PacketFault {
  enum class Kind : std::uint32_t { none = 0, lost = 1, spoilt = 2 };
  Kind kind = Kind::none;
  std::uint64_t index = 0;
};

struct HookedSpace : exec::HostSpace {
  using Base = exec::HostSpace;

  // In force on the calling thread for the life of this object.
  class Planted {
   public:
    explicit Planted(PacketFault fault) : fault_(fault), outer_(std::exchange(planted_, this)) {}
    Planted(const Planted&) = delete;
    Planted& operator=(const Planted&) = delete;
    ~Planted() { planted_ = outer_; }

   private:
    friend HookedSpace;
    PacketFault fault_;
    std::uint64_t sent_ = 0;
    Planted* outer_;
  };

  // Epoch 0 is the clearing of an own line.
  static void store_line(Line& line, exec::Pack pack, std::uint32_t flag) {
    const auto fate = flag == 0 ? PacketFault::Kind::none : next();
    if (fate == PacketFault::Kind::lost) return;
    Base::store_line(line, fate == PacketFault::Kind::spoilt ? pack ^ kSpoilt : pack, flag);
  }
  // All ones puts an own packet to rest.
  static void store_packet(Packet& packet, const exec::Vec& value) {
    const bool rest = ~value.pack[0] == 0 && ~value.pack[1] == 0;
    const auto fate = rest ? PacketFault::Kind::none : next();
    if (fate == PacketFault::Kind::lost) return;
    Base::store_packet(packet, fate == PacketFault::Kind::spoilt
                                   ? exec::Vec{{value.pack[0] ^ kSpoilt, value.pack[1]}}
                                   : value);
  }
  static void store_part(Wide& line, int part, const Part& value) {
    const auto fate = next();
    if (fate != PacketFault::Kind::lost) Base::store_part(line, part, as_sent(value, fate));
  }
  template <exec::Adds adds>
  static void add_part(Wide& line, int part, const Part& value) {
    const auto fate = next();
    if (fate != PacketFault::Kind::lost) Base::add_part<adds>(line, part, as_sent(value, fate));
  }
  static void store_cell(Cell& cell, const exec::Vec& value) {
    const auto fate = next();
    if (fate == PacketFault::Kind::lost) return;
    Base::store_cell(cell, fate == PacketFault::Kind::spoilt
                               ? exec::Vec{{value.pack[0] ^ kSpoilt, value.pack[1]}}
                               : value);
  }
  // A flag is what other ranks wait for; a spoilt one is lost.
  template <exec::Order order, exec::Scope scope>
  static void store(Word& word, std::uint32_t value) {
    if constexpr (order == exec::Order::release && scope == exec::Scope::system) {
      if (next() != PacketFault::Kind::none) return;
    }
    Base::store<order, scope>(word, value);
  }

  // As Bulk.
  template <class T, ReduceOp op>
  struct Cells : Bulk<T, op> {
    static void copy(Cell* to, const char* from, std::size_t cells) {
      const auto fate = next();
      if (fate == PacketFault::Kind::lost) return;
      Bulk<T, op>::copy(to, from, cells);
      if (fate == PacketFault::Kind::spoilt) to->pack[0] ^= kSpoilt;
    }
  };

 private:
  // The highest bit of an exponent, or a large part of an integer: no small whole number hides it in a sum.
  static constexpr exec::Pack kSpoilt = 0x40000000;

  static Part as_sent(Part value, PacketFault::Kind fate) {
    if (fate == PacketFault::Kind::spoilt) value.pack[0] ^= kSpoilt;
    return value;
  }
  static PacketFault::Kind next() {
    Planted* const planted = planted_;
    if (planted == nullptr || planted->sent_++ != planted->fault_.index) return PacketFault::Kind::none;
    return planted->fault_.kind;
  }
  static inline thread_local Planted* planted_ = nullptr;
};
static_assert(exec::ExecSpace<HookedSpace>);

inline protocol::Control<HookedSpace> hooked(const protocol::Control<exec::HostSpace>& control) {
  return {control.abort, control.claim, control.valid, control.record, control.timeout_ns, control.end_ns};
}

}  // namespace nearlight::algorithm::host
