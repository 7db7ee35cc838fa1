// The collectives by parts of one CPU rank, run by the calling thread.
#pragma once

#include "algorithm/host/all_reduce.hpp"
#include "algorithm/parts.hpp"

namespace nearlight::algorithm::host {

// `all`: as for an AllReduce, but for `count` and `algorithm`, which are not looked at. Parts lie in all.send
// and all.recv, in bytes where they are moved, in elements where they are reduced. Protocols: LL and simple,
// and the sentinel for reductions of types that have one. Test hooks: when reducing, of f32 alone.
struct PartsCall {
  AllReduceCall all;
  Parts parts;
  bool agrees = false;  // moves by LL: Parts::most is this rank's own
};

// A failure is in the control's record.
void move_parts(const PartsCall& call);
void reduce_parts(const PartsCall& call);

}  // namespace nearlight::algorithm::host
