// A channel as a kernel makes it from its parameter: which protocol, where, by whom.
#pragma once

#include <cstdint>

#include <nearlight/detail/protocol/channel_memory.hpp>
#include <nearlight/detail/protocol/message_channel.hpp>
#include <nearlight/detail/protocol/put_channel.hpp>

namespace nearlight::device {

// The protocols, by name.
struct LL {};  // messages of up to 8 bytes: any bits, half the bandwidth, the shortest way
struct Sentinel {
};                 // messages of up to 16 bytes: full bandwidth, for floats; a fence an epoch inside a kernel
struct Simple {};  // put, signal, wait: any size, full bandwidth, one release a peer and epoch

// All of it, plain data; see there.
using Shape = protocol::ChannelShape;
using Plan = protocol::ChannelPlan;
using Memory = protocol::ChannelMemory;
using Misuse = protocol::Misuse;
using Fault = protocol::FaultRecord;
using exec::Vec;

// Bytes that a rank provides for channels of this shape. Throws std::invalid_argument naming the field.
inline Plan plan(const Shape& shape) { return protocol::plan_channels(shape); }

}  // namespace nearlight::device

namespace nearlight::protocol {

template <class Protocol, RegionView V, exec::Coop C, bool kChecks>
struct ChannelKind;
template <RegionView V, exec::Coop C, bool kChecks>
struct ChannelKind<device::LL, V, C, kChecks> {
  using Type = MessageChannel<V, LlCarrier, C, kChecks>;
};
template <RegionView V, exec::Coop C, bool kChecks>
struct ChannelKind<device::Sentinel, V, C, kChecks> {
  using Type = MessageChannel<V, SentinelCarrier, C, kChecks>;
};
template <RegionView V, exec::Coop C, bool kChecks>
struct ChannelKind<device::Simple, V, C, kChecks> {
  using Type = PutChannel<V, C, kChecks>;
};

// One group's hold on one channel of its rank. All threads of the group make it, with the same arguments, and
// end it together. Of one channel there is one at a time; channels are independent of each other. A kernel
// that comes later on the same stream goes on with it as it is. Inside one kernel, so may the same group;
// between two sessions of Sentinel or Simple it must then run a fence (__threadfence_system) and a sync of
// its own.
// kRanks: the number of ranks, where the kernel is compiled for one, which saves working out in every epoch
// what then is a constant; 0: whatever the memory has.
template <exec::ExecSpace S, class Protocol, exec::Coop C, bool kChecks, int kRanks = 0>
class Channel : public ChannelKind<Protocol, FlatRegion<S, kRanks>, C, kChecks>::Type {
  static_assert(kRanks == 0 || (kRanks >= 2 && kRanks <= kMaxRanks));
  using View = FlatRegion<S, kRanks>;

 public:
  using Base = typename ChannelKind<Protocol, View, C, kChecks>::Type;

  // `index`: of the channel, below memory.shape.channels; the same on all ranks that are to talk.
  NL_FN explicit Channel(const ChannelMemory& memory, std::uint32_t index = 0, C coop = {})
      : Channel(memory, index < memory.shape.channels ? index : 0, coop, index) {}

 private:
  // `asked` and the number of ranks: looked at without checks as well, for they decide where everything is
  // written.
  NL_FN Channel(const ChannelMemory& memory, std::uint32_t index, C coop, std::uint32_t asked)
      : Base(View(memory.region(index), memory.stride, memory.rank, memory.shape.layout()), coop,
             *reinterpret_cast<RegionState<S>*>(memory.own_of(index)), memory.control<S>(),
             memory.peer_mask(), notes_of(memory, index), index, memory.collective) {
    if (asked >= memory.shape.channels) this->misuse(Misuse::no_such_channel, -1, asked);
    if constexpr (kRanks > 0) {
      if (memory.shape.nranks != kRanks) this->belongs_to_others(kRanks);
    }
  }

  static NL_FN ChannelNotes<S> notes_of(const ChannelMemory& memory, std::uint32_t index) {
    // Of other ranks than the memory's, the words would lie elsewhere.
    if (memory.shape.checks == 0 || (kRanks > 0 && memory.shape.nranks != kRanks)) return {};
    char* const own = memory.own_of(index);
    static_assert(sizeof(RegionState<S>) <= 64 &&
                  64 + sizeof(typename S::Word) * kMaxRanks <= ChannelShape::kOwnHead);
    return {reinterpret_cast<typename S::Word*>(own + 64),
            reinterpret_cast<typename S::Word*>(own + ChannelShape::kOwnHead), memory.shape.most_messages()};
  }
};

}  // namespace nearlight::protocol
