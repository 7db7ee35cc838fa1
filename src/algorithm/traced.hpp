// The hooks of a traced call: where a test may hold a thread up, this writes down the time.
#pragma once

#include <cstdint>

#include <nearlight/detail/exec/fn.hpp>
#include <nearlight/detail/protocol/epoch.hpp>
#include "algorithm/one_shot.hpp"
#include "trace/epoch_ring.hpp"

namespace nearlight::algorithm {

// Made once a call, by each thread of the group. All of them read the clock and one writes: a thread that
// took another way than the rest of its warp would hold the warp up twice at every point.
template <class S>
class Traced {
 public:
  // `ring`: of the region, `lines` of them, a power of two; `epoch`: the last one used.
  NL_FN Traced(trace::EpochTimes* ring, std::uint32_t lines, std::uint32_t collective, std::uint32_t epoch,
               bool writes)
      : ring_(ring),
        mask_(lines - 1),
        collective_(collective),
        epoch_(epoch),
        writes_(writes),
        start_ns_(S::now_ns()) {}

  NL_FN void at(DelayPoint point) const {
    const std::uint64_t now_ns = S::now_ns();
    switch (point) {
      case DelayPoint::none:
        return;
      case DelayPoint::before_publish:
        epoch_ = protocol::next_epoch<S>(epoch_);
        if (!started_) start_ns_ = now_ns;
        publish_ns_ = now_ns;
        started_ = false;
        begun_ = true;
        return;
      case DelayPoint::published:
        return note(trace::Event::published, now_ns);
      case DelayPoint::after_arrival:
        return note(trace::Event::arrived, now_ns);
      case DelayPoint::after_read:
        return note(trace::Event::done, now_ns);
    }
  }

 private:
  static NL_FN constexpr std::uint32_t place(trace::Event event) { return static_cast<std::uint32_t>(event); }
  // The first one of an epoch also writes what came before it: stores in front of the sending would hold it
  // up, behind it they fall into the wait.
  NL_FN void note(trace::Event event, std::uint64_t ns) const {
    const bool first = begun_;
    begun_ = false;
    if (!writes_) return;
    trace::EpochTimes& line = ring_[epoch_ & mask_];
    if (first) {
      line.epoch = epoch_;
      line.collective = collective_;
      line.at_ns[place(trace::Event::start)] = start_ns_;
      line.at_ns[place(trace::Event::publish)] = publish_ns_;
    }
    line.at_ns[place(event)] = ns;
  }

  trace::EpochTimes* ring_;
  std::uint32_t mask_, collective_;
  mutable std::uint32_t epoch_;
  bool writes_;
  mutable bool started_ = true;  // the next epoch has its start: it is the call's first
  mutable bool begun_ = false;   // the epoch's start and publish are not written yet
  mutable std::uint64_t start_ns_;
  mutable std::uint64_t publish_ns_ = 0;
};

}  // namespace nearlight::algorithm
