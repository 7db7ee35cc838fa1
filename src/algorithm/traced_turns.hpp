// The hooks of a traced end of a pipe (pipe.hpp): where a test may hold a thread up, this writes down the
// time, and which turn it was.
#pragma once

#include <cstdint>

#include <nearlight/detail/exec/fn.hpp>
#include "algorithm/one_shot.hpp"
#include "trace/turn_ring.hpp"

namespace nearlight::algorithm {

// Made once an end and call, by each thread of the group; one of them writes, when a turn is over: a store in
// front of the sending would hold it up.
template <class S>
class TracedTurns {
 public:
  // `ring`: of the end, `lines` of them, a power of two; `start_ns`: when the call began, for who writes.
  NL_FN TracedTurns(trace::TurnTimes* ring, std::uint32_t lines, bool writes, std::uint64_t start_ns)
      : ring_(ring), mask_(lines - 1), writes_(writes), start_ns_(start_ns) {}

  // `number`: of the turn that comes next; `read_as_it_comes`: what has arrived has been read (lines). A turn
  // that was given up stays the one.
  NL_FN void begin(std::uint32_t number, std::uint32_t bytes, bool read_as_it_comes) const {
    if (open_) return;
    open_ = true;
    read_as_it_comes_ = read_as_it_comes;
    number_ = number;
    bytes_ = bytes;
    arrived_ns_ = publish_ns_ = 0;
  }
  // The sender has room.
  NL_FN void paid() const {
    if (writes_) arrived_ns_ = S::now_ns();
  }
  NL_FN void at(DelayPoint point) const {
    if (!writes_) return;
    // Each reading costs a good part of what a small message takes.
    const bool is_known = point == DelayPoint::after_read && read_as_it_comes_;
    const std::uint64_t now_ns = is_known ? arrived_ns_ : S::now_ns();
    switch (point) {
      case DelayPoint::none:
        return;
      case DelayPoint::before_publish:
        publish_ns_ = now_ns;
        return;
      case DelayPoint::published:
        return write(now_ns, 0);
      case DelayPoint::after_arrival:
        arrived_ns_ = now_ns;
        return;
      case DelayPoint::after_read:
        return write(0, now_ns);
    }
  }
  // The call ends; a turn that is not over never will be.
  NL_FN void gave_up() const {
    if (writes_ && open_) write(0, 0);
  }

 private:
  NL_FN void write(std::uint64_t published_ns, std::uint64_t done_ns) const {
    trace::TurnTimes& line = ring_[number_ & mask_];
    line.number = number_;
    line.bytes = bytes_;
    const std::uint64_t all_ns[trace::kEvents] = {start_ns_, publish_ns_, published_ns, arrived_ns_, done_ns};
    NL_UNROLL
    for (int i = 0; i < trace::kEvents; ++i) line.at_ns[i] = all_ns[i];
    open_ = false;
    start_ns_ = published_ns != 0 ? published_ns : done_ns;
  }

  trace::TurnTimes* ring_;
  std::uint32_t mask_;
  bool writes_;
  mutable bool open_ = false, read_as_it_comes_ = false;
  mutable std::uint32_t number_ = 0, bytes_ = 0;
  mutable std::uint64_t start_ns_, arrived_ns_ = 0, publish_ns_ = 0;
};

}  // namespace nearlight::algorithm
