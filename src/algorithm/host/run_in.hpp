// One AllReduce of a CPU rank in a session, by the algorithm and protocol of the call.
#pragma once

#include "algorithm/host/all_reduce.hpp"
#include "algorithm/host/two_shot.hpp"
#include "algorithm/one_shot.hpp"
#include "algorithm/one_shot_ll128.hpp"
#include "algorithm/one_shot_sentinel.hpp"
#include "algorithm/sentinel_cell.hpp"

namespace nearlight::algorithm::host {

// Cells: see NoBulk.
template <class T, ReduceOp op, int kMax, class Cells, class SessionT, class Hooks>
void run_in(SessionT& session, const AllReduceCall& call, const Hooks& hooks) {
  using Math = PackMath<exec::HostSpace, T, op>;
  const Buffer<exec::HostSpace, T> input(const_cast<void*>(call.send), call.count),
      output(call.recv, call.count);
  if (call.algorithm == Algorithm::two_shot_atomic) {
    two_shot_atomic_of<T>(session, call.op, input, output, hooks);
  } else if (call.algorithm == Algorithm::two_shot) {
    two_shot_of<T, kMax>(session, call.protocol, input, output, hooks, Math{});
  } else if (call.protocol == Protocol::ll) {
    one_shot_ll<Math, kMax, 0>(session, Share{0, 1}, input, output, hooks);
  } else if (call.protocol == Protocol::ll128) {
    one_shot_ll128<Math, kMax>(session, Share{0, 1}, input, output, hooks);
  } else if (call.protocol == Protocol::sentinel) {
    if constexpr (kHasSentinel<T>) {
      one_shot_sentinel<Math, SentinelCell<T>, kMax>(session, Share{0, 1}, 1, input, output, hooks);
    }
  } else {
    one_shot_simple<Math, kMax, 1, Cells>(session, Share{0, 1}, input, output, hooks);
  }
  session.close();
}

}  // namespace nearlight::algorithm::host
