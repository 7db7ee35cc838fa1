// The memory of channels, on which people's own kernels send and receive: its shape, how much of it is
// needed, and the plain struct that a kernel gets. Who has memory that all ranks reach at base + rank *
// stride makes channels of it; a communicator is not needed.
//
// Every channel is a region (region.hpp) with an epoch of its own, used by one group of threads at a time.
// What is shared is zeroed before its first use by any rank, but for the packets, which are all ones
// (packets_at()); what is a rank's own is zeroed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>

#include <nearlight/detail/exec/concepts.hpp>
#include <nearlight/detail/exec/fn.hpp>
#include <nearlight/detail/protocol/fault.hpp>
#include <nearlight/detail/protocol/region.hpp>
#include <nearlight/detail/protocol/session.hpp>

// Define it as 1 before the first include for channels that look for mistakes of their callers.
#ifndef NEARLIGHT_DEVICE_CHECKS
#define NEARLIGHT_DEVICE_CHECKS 0
#endif

namespace nearlight::protocol {

inline constexpr std::uint32_t kMostChannels = 1024;
inline constexpr std::uint32_t kMostChannelSlots = 1u << 20;

// What the channels of a group are like; the same on all ranks.
struct ChannelShape {
  std::int32_t nranks = 0;     // 1 to 8
  std::uint32_t channels = 1;  // groups of threads that communicate at the same time
  std::uint32_t slots = 0;     // LL: messages of up to 8 bytes from each rank in an epoch
  std::uint32_t packets = 0;   // Sentinel: messages of up to 16 bytes from each rank in an epoch
  std::uint32_t cells = 0;     // Simple: 16-byte cells that each rank may write in an epoch
  std::uint32_t checks = 1;    // 0: without the memory that channels with checks note things in

  NL_HOST_FN RegionLayout layout() const { return {nranks, slots, cells, packets, 0, 0}; }
  // Of the busiest protocol.
  NL_HOST_FN std::uint32_t most_messages() const {
    const std::uint32_t most = slots > packets ? slots : packets;
    return most > cells ? most : cells;
  }
  // A rank's own part of one channel: state and who was heard, then who has written what.
  static constexpr std::size_t kOwnHead = 128;
  NL_HOST_FN std::size_t own_bytes_of_one() const {
    if (checks == 0) return kOwnHead;
    const std::size_t words = static_cast<std::size_t>(nranks) * most_messages();
    return kOwnHead + (words * sizeof(std::uint32_t) + kOwnHead - 1) / kOwnHead * kOwnHead;
  }
};

// How much memory a rank provides, bytes.
struct ChannelPlan {
  std::size_t shared_bytes;  // that all ranks reach, aligned to 128
  std::size_t own_bytes;     // that only this rank's threads use, aligned to 128
};

// Why there are no such channels; "" where there are.
inline std::string wrong_with(const ChannelShape& shape) {
  const auto outside = [](const char* name, std::uint32_t value, std::uint32_t least, std::uint32_t most) {
    return std::string(name) + ": " + std::to_string(value) + " is not between " + std::to_string(least) +
           " and " + std::to_string(most);
  };
  if (shape.nranks < 1 || shape.nranks > kMaxRanks)
    return "nranks: " + std::to_string(shape.nranks) + " is not between 1 and " + std::to_string(kMaxRanks);
  if (shape.channels < 1 || shape.channels > kMostChannels)
    return outside("channels", shape.channels, 1, kMostChannels);
  if (shape.slots > kMostChannelSlots) return outside("slots", shape.slots, 0, kMostChannelSlots);
  if (shape.packets > kMostChannelSlots) return outside("packets", shape.packets, 0, kMostChannelSlots);
  if (shape.cells > kMostChannelSlots) return outside("cells", shape.cells, 0, kMostChannelSlots);
  if (shape.checks > 1) return outside("checks", shape.checks, 0, 1);
  return "";
}

// For the host. Throws std::invalid_argument that names what is out of range.
inline ChannelPlan plan_channels(const ChannelShape& shape) {
  if (const std::string wrong = wrong_with(shape); !wrong.empty()) throw std::invalid_argument(wrong);
  return {shape.layout().region_bytes() * shape.channels, shape.own_bytes_of_one() * shape.channels};
}

// What a mistake of the caller was. It stands in FaultRecord::reserved of a record of kMisuse.
enum class Misuse : std::uint32_t {
  none = 0,
  no_such_channel = 1,  // slot: the index asked for
  no_such_slot = 2,     // slot
  no_such_peer = 3,     // peer: no rank, the caller itself, or not among its peers
  not_heard = 4,        // the epoch was ended although nothing had been received from `peer` in it
  two_writers = 5,      // slot: written to `peer` twice in one epoch
  barrier_in_use = 6,   // a barrier in an epoch with signals, or of some of the ranks
  other_ranks = 7,      // slot: the number of ranks that the kernel was compiled for
};
inline constexpr Wait kMisuse = static_cast<Wait>(3);

// In words; "none" for anything else.
inline const char* in_words(Misuse misuse) {
  switch (misuse) {
    case Misuse::none:
      break;
    case Misuse::no_such_channel:
      return "there is no channel of this index";
    case Misuse::no_such_slot:
      return "there is no slot of this number";
    case Misuse::no_such_peer:
      return "that rank is none of its peers";
    case Misuse::not_heard:
      return "the epoch was ended before anything had been received from that rank";
    case Misuse::two_writers:
      return "the slot was written twice in one epoch";
    case Misuse::barrier_in_use:
      return "a barrier needs an epoch without signals, and all ranks as peers";
    case Misuse::other_ranks:
      return "the kernel was compiled for another number of ranks";
  }
  return "none";
}

// The channels of one rank: a kernel's parameter, by value. All pointers are such as the kernel can use.
struct ChannelMemory {
  char* base = nullptr;    // where rank 0's shared part begins
  std::size_t stride = 0;  // bytes from one rank's part to the next
  char* own = nullptr;     // this rank's own part
  // See Control. `abort`, `valid` and `record` in memory that the host reads.
  std::uint32_t* abort = nullptr;
  std::uint32_t* claim = nullptr;
  std::uint32_t* valid = nullptr;
  FaultRecord* record = nullptr;
  std::uint64_t timeout_ns = 0;  // of one wait
  std::int32_t rank = 0;
  // Bit p: rank p is among those that this rank hears from in every epoch, and sends to. Constant for the
  // life of the memory, and mutual. 0: all others.
  std::uint32_t peers = 0;
  ChannelShape shape;
  std::uint32_t collective = 0;  // for the record

  NL_HOST_FN std::uint32_t all_others() const {
    return ((1u << static_cast<std::uint32_t>(shape.nranks)) - 1u) &
           ~(1u << static_cast<std::uint32_t>(rank));
  }
  NL_HOST_FN std::uint32_t peer_mask() const { return peers == 0 ? all_others() : peers & all_others(); }
  NL_HOST_FN char* region(std::uint32_t index) const { return base + index * shape.layout().region_bytes(); }
  NL_HOST_FN char* own_of(std::uint32_t index) const { return own + index * shape.own_bytes_of_one(); }

  template <class S>
  NL_HOST_FN Control<S> control() const {
    using Word = typename S::Word;
    Control<S> control;
    control.abort = reinterpret_cast<Word*>(abort);
    control.claim = reinterpret_cast<Word*>(claim);
    control.valid = reinterpret_cast<Word*>(valid);
    control.record = record;
    control.timeout_ns = timeout_ns;
    return control;
  }
};

// Where a channel notes what its callers do, where it looks for mistakes. Of one channel, a rank's own.
template <class S>
struct ChannelNotes {
  typename S::Word* heard = nullptr;    // [source] the epoch in which it was heard last; null: no notes
  typename S::Word* writers = nullptr;  // [peer][message] non-zero: written in this epoch
  std::uint32_t messages = 0;           // a peer
};

}  // namespace nearlight::protocol
