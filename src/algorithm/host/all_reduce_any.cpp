#include "algorithm/host/all_reduce_any.hpp"

#include "algorithm/any_math.hpp"
#include "algorithm/host/bulk.hpp"
#include "algorithm/host/region.hpp"
#include "algorithm/host/two_shot.hpp"
#include "algorithm/one_shot_ll128.hpp"
#include "algorithm/one_shot_sentinel.hpp"
#include "algorithm/sentinel_cell.hpp"
#include "algorithm/traced.hpp"

namespace nearlight::algorithm::host {

namespace {

using exec::HostSpace;

// hooks_of(epoch): the hooks, the last epoch used being that.
template <class T, int kMax, class HooksOf>
void run(const AllReduceCall& call, const HooksOf& hooks_of) {
  using Math = AnyMath<HostSpace, T>;
  using Bufs = ScaledBuffer<HostSpace, T>;
  protocol::Session session(Region<kMax>(call.region, call.stride, call.rank, call.layout), exec::SoloCoop{},
                            *call.state, call.control, 0, call.collective);
  const Bufs input(const_cast<void*>(call.send), call.count, call.op == ReduceOp::premul_sum, call.factor);
  const Bufs output(call.recv, call.count);
  const Math math{call.op};
  const auto hooks = hooks_of(session.epoch());
  if (call.algorithm == Algorithm::two_shot_atomic) {
    two_shot_atomic_of<T>(session, call.op, input, output, hooks);
  } else if (call.algorithm == Algorithm::two_shot) {
    two_shot_of<T, kMax>(session, call.protocol, input, output, hooks, math);
  } else if (call.protocol == Protocol::ll) {
    one_shot_ll<Math, kMax, 0>(session, Share{0, 1}, input, output, hooks, math);
  } else if (call.protocol == Protocol::ll128) {
    one_shot_ll128<Math, kMax>(session, Share{0, 1}, input, output, hooks, math);
  } else if (call.protocol == Protocol::sentinel) {
    if constexpr (kHasSentinel<T>) {
      one_shot_sentinel<Math, SentinelCell<T>, kMax>(session, Share{0, 1}, 1, input, output, hooks, math);
    }
  } else {
    one_shot_simple<Math, kMax, 1, AnyBulk<T>>(session, Share{0, 1}, input, output, hooks, math,
                                               AnyBulk<T>{call.op});
  }
  session.close();
}

}  // namespace

void all_reduce_any(const AllReduceCall& call) {
  with_type(call.type, [&](auto tag) {
    using T = typename decltype(tag)::type;
    if constexpr (!std::is_void_v<T>) {
      const auto none = [](std::uint32_t) { return NoDelay{}; };
      if (call.trace != nullptr) {
        run<T, protocol::kMaxRanks>(call, [&call](std::uint32_t epoch) {
          return Traced<HostSpace>(call.trace, trace::kLinesOnCpu, call.collective, epoch, true);
        });
      } else if (call.layout.nranks <= 2) {
        run<T, 2>(call, none);
      } else {
        run<T, protocol::kMaxRanks>(call, none);
      }
    }
  });
}

void multiply_alone(DataType type, const void* send, void* recv, std::uint64_t count, std::uint64_t factor) {
  with_type(type, [&](auto tag) {
    using T = typename decltype(tag)::type;
    if constexpr (!std::is_void_v<T>) {
      const ScaledBuffer<HostSpace, T> input(const_cast<void*>(send), count, true, factor);
      const ScaledBuffer<HostSpace, T> output(recv, count);
      for (std::uint64_t i = 0; i < input.vecs(); ++i) output.store_vec(i, input.load_vec(i));
    }
  });
}

}  // namespace nearlight::algorithm::host
