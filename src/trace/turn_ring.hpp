// When the steps of a message's turns were: one line a turn in a ring of one end of one pipe, which that end
// alone writes.
#pragma once

#include <cstddef>
#include <cstdint>

#include <nearlight/detail/exec/fn.hpp>
#include "trace/epoch_ring.hpp"

namespace nearlight::trace {

// Of who sends: start (it could have begun: the call did, or the turn before was over), arrived (there is
// room: the receiver has read the turn before the last; cells alone), publish (with lines only then was there
// room), published. Of who receives: start (the same: from here on it looks), arrived, done (read). 0: it did
// not happen.
struct alignas(64) TurnTimes {
  std::uint32_t number;  // of the turn, the same at both ends; 0: never used
  std::uint32_t bytes;
  std::uint64_t at_ns[kEvents];  // of the writer's clock
  std::uint64_t reserved[2];
};
static_assert(sizeof(TurnTimes) == 64);

// Lines of an end's ring; powers of two.
inline constexpr std::uint32_t kTurnLinesOnCpu = 1u << 13;  // 512 KiB
inline constexpr std::uint32_t kTurnLinesOnGpu = 1u << 8;   // 16 KiB

// Rings of a rank lie by lane, peer and direction.
NL_HOST_FN std::size_t turn_rings(std::uint32_t lanes, int nranks) {
  return std::size_t{lanes} * static_cast<std::size_t>(nranks) * 2;
}
NL_HOST_FN std::size_t turn_ring_of(std::uint32_t lane, int nranks, int peer, bool sends) {
  return turn_rings(lane, nranks) + static_cast<std::size_t>(peer) * 2 + (sends ? 1 : 0);
}

}  // namespace nearlight::trace
