// What a lane of pipes is (see pipe.hpp): its memory, the messages that it is to move, and what an end waits
// for.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>

#include <nearlight/detail/exec/concepts.hpp>
#include <nearlight/detail/exec/fn.hpp>
#include <nearlight/detail/protocol/epoch.hpp>
#include <nearlight/detail/protocol/fault.hpp>
#include <nearlight/detail/protocol/region.hpp>

namespace nearlight::algorithm {

enum class Carrier : std::uint32_t { lines = 0, cells = 1 };
inline constexpr int kCarriers = 2;

// A message of one end. All but `data` is the same on both.
struct Message {
  char* data;           // the sender's is only read
  std::uint64_t bytes;  // not 0
  std::uint32_t lanes;  // that share it; 1 at least
  std::uint32_t span;   // units (8 bytes by lines, 16 by cells) of a turn, at most what a bank holds
  Carrier carrier;
  std::uint32_t type;  // told to the receiver with the bytes where messages are compared
};

// The messages between two ranks in one direction, in order.
struct PipeQueue {
  std::int32_t peer;
  std::uint32_t sends;         // 1: to the peer; 0: from it
  std::uint32_t first, count;  // of the messages of the call
};
// To and from seven others.
inline constexpr int kMostQueues = 2 * (protocol::kMaxRanks - 1);

// The number of the last turn, by carrier: a rank's own memory, one for each lane and peer. Zeroed.
template <class S>
struct alignas(16) PipeState {
  typename S::Word sent[kCarriers];
  typename S::Word received[kCarriers];
};

// In fault records of a pipe, FaultRecord::reserved: the peer has not read what was sent before.
inline constexpr std::uint32_t kNotTaken = 1;
// A record's kind: the two ends disagree about a message. expected, seen: bytes of the own and the other one,
// at most 2^32 - 1; slot: the two types, the own one in the upper half.
inline constexpr protocol::Wait kMismatch = static_cast<protocol::Wait>(4);

// A lane of pipes.
template <class V>
concept PipeView = protocol::RegionView<V> && requires(const V& view, int owner, int reader, int carrier) {
  // At `owner`, who sends: the last turn of that carrier that `reader` has read.
  { view.credit(owner, reader, carrier) } -> std::same_as<typename V::Space::Word&>;
};

// Of a symmetric heap.
template <exec::ExecSpace S>
class FlatPipes : public protocol::FlatRegion<S> {
 public:
  NL_HOST_FN FlatPipes(char* base, std::size_t stride, int rank, const protocol::RegionLayout& layout)
      : protocol::FlatRegion<S>(base, stride, rank, layout),
        credits_(base + layout.region_bytes()),
        stride_(stride) {}

  NL_FN typename S::Word& credit(int owner, int reader, int carrier) const {
    return *reinterpret_cast<typename S::Word*>(
        credits_ + static_cast<std::size_t>(owner) * stride_ +
        protocol::kFlagStride * static_cast<std::size_t>(carrier * this->nranks() + reader));
  }

 private:
  char* credits_;  // of rank 0
  std::size_t stride_;
};
// Of one lane of one rank; a multiple of protocol::kFlagStride.
NL_HOST_FN std::size_t pipe_bytes(const protocol::RegionLayout& layout) {
  return layout.region_bytes() + protocol::kFlagStride * kCarriers * static_cast<std::size_t>(layout.nranks);
}

// What an end waits for in a turn, for one look at it and for the fault record.
template <PipeView V>
struct PipeWait {
  using S = typename V::Space;

  V view;
  int peer;
  bool sends;
  Carrier carrier;
  std::uint32_t last;  // turn before this one
  std::uint32_t slot;  // of a receiver's line

  NL_FN std::uint32_t turn() const { return protocol::next_epoch<S>(last); }
  NL_FN bool is_paid(std::uint32_t credit) const {
    return credit == last || protocol::next_epoch<S>(credit) == last;
  }
  template <exec::Order order>
  NL_FN std::uint32_t credit() const {
    return S::template load<order, exec::Scope::system>(
        view.credit(view.rank(), peer, static_cast<int>(carrier)));
  }
  template <exec::Order order>
  NL_FN std::uint32_t flag() const {
    return S::template load<order, exec::Scope::system>(
        view.flag(view.rank(), protocol::bank_of(turn()), peer));
  }

  NL_FN bool is_over(std::uint32_t& seen) const {
    if (sends) {
      seen = credit<exec::Order::relaxed>();
      return is_paid(seen);
    }
    if (carrier == Carrier::cells) {
      seen = flag<exec::Order::relaxed>();
      return seen == turn();
    }
    exec::Pack pack;
    return S::try_load_line(view.line(view.rank(), protocol::bank_of(turn()), peer, slot), turn(), pack,
                            seen);
  }
  NL_FN void operator()(protocol::FaultRecord& fault) const {
    fault.epoch = turn();
    fault.slot = slot;
    fault.expected = sends ? last : turn();
    fault.reserved = sends ? kNotTaken : 0;
    if (!is_over(fault.seen)) fault.peer = peer;
  }
};

}  // namespace nearlight::algorithm
