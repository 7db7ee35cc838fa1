#include "algorithm/any_math.hpp"
#include "algorithm/host/bulk.hpp"
#include "algorithm/host/parts.hpp"
#include "algorithm/host/parts_session.hpp"
#include "algorithm/parts_simple.hpp"
#include "algorithm/sentinel_cell.hpp"

namespace nearlight::algorithm::host {

namespace {

using exec::HostSpace;

template <class T, class Cells, class SessionT, class Hooks>
void reduce_in(SessionT& session, const PartsCall& call, const Hooks& hooks, const Cells& cells) {
  constexpr int kMax = protocol::kMaxRanks;
  const AllReduceCall& all = call.all;
  const AnyMath<HostSpace, T> math{all.op};
  // Each part has its own length.
  const ScaledBuffer<HostSpace, T> input(const_cast<void*>(all.send), 0, all.op == ReduceOp::premul_sum,
                                         all.factor);
  const Buffer<HostSpace, T> output(all.recv, 0);
  const Share share{0, 1};
  if (all.protocol == Protocol::ll) {
    algorithm::reduce_parts<LlUnits, kMax>(session, share, call.parts, input, output, hooks, math);
  } else if (all.protocol == Protocol::simple) {
    reduce_parts_simple<kMax, 1>(session, share, call.parts, input, output, hooks, math, cells);
  } else if constexpr (kHasSentinel<T>) {
    algorithm::reduce_parts<SentinelUnits<SentinelCell<T>>, kMax>(session, share, call.parts, input, output,
                                                                  hooks, math);
  }
}

}  // namespace

void reduce_parts(const PartsCall& call) {
  if (has_test_hooks(call.all)) {
    with_hooked_session(call.all, [&](auto& session, const auto& hooks) {
      reduce_in<float>(session, call, hooks, HookedSpace::Cells<float, ReduceOp::sum>{});
    });
    return;
  }
  with_type(call.all.type, [&](auto tag) {
    using T = typename decltype(tag)::type;
    if constexpr (!std::is_void_v<T>) {
      with_session(call.all, [&](auto& session, const auto& hooks) {
        reduce_in<T>(session, call, hooks, AnyBulk<T>{call.all.op});
      });
    }
  });
}

}  // namespace nearlight::algorithm::host
