// Two-shot of one CPU rank, by the protocol that is asked for.
#pragma once

#include <type_traits>

#include "algorithm/kinds.hpp"
#include "algorithm/sentinel_cell.hpp"
#include "algorithm/two_shot.hpp"
#include "algorithm/two_shot_atomic.hpp"

namespace nearlight::algorithm::host {

// Not with simple; the sentinel for types that have one.
template <class T, int kMax, class SessionT, class In, class Out, class Hooks, class Math>
void two_shot_of(SessionT& session, Protocol protocol, const In& input, const Out& output, const Hooks& hooks,
                 const Math& math) {
  if (protocol == Protocol::ll) {
    two_shot<LlUnits, kMax>(session, Share{0, 1}, input, output, hooks, math);
  } else if constexpr (kHasSentinel<T>) {
    two_shot<SentinelUnits<SentinelCell<T>>, kMax>(session, Share{0, 1}, input, output, hooks, math);
  }
}

// For types that have it (algorithm::reduces).
template <class T, class SessionT, class Bufs, class Hooks>
void two_shot_atomic_of(SessionT& session, ReduceOp op, const Bufs& input, const Bufs& output,
                        const Hooks& hooks) {
  if constexpr (std::is_same_v<T, float> || std::is_same_v<T, F16> || std::is_same_v<T, Bf16>) {
    two_shot_atomic(session, Share{0, 1}, input, output, hooks,
                    LineSum<typename SessionT::Space, T>{op == ReduceOp::avg});
  }
}

}  // namespace nearlight::algorithm::host
