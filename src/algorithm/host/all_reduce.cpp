#include "algorithm/host/all_reduce.hpp"

#include "algorithm/host/all_reduce_any.hpp"
#include "algorithm/host/bulk.hpp"
#include "algorithm/host/region.hpp"
#include "algorithm/host/run_in.hpp"
#include "algorithm/traced.hpp"

namespace nearlight::algorithm::host {

namespace {

using exec::HostSpace;

template <class T, ReduceOp op, int kMax>
void run(const AllReduceCall& call) {
  protocol::Session session(Region<kMax>(call.region, call.stride, call.rank, call.layout), exec::SoloCoop{},
                            *call.state, call.control, 0, call.collective);
  run_in<T, op, kMax, Bulk<T, op>>(session, call, NoDelay{});
}

template <class T, ReduceOp op>
void run_traced(const AllReduceCall& call) {
  protocol::Session session(Region<protocol::kMaxRanks>(call.region, call.stride, call.rank, call.layout),
                            exec::SoloCoop{}, *call.state, call.control, 0, call.collective);
  const Traced<HostSpace> hooks(call.trace, trace::kLinesOnCpu, call.collective, session.epoch(), true);
  run_in<T, op, protocol::kMaxRanks, Bulk<T, op>>(session, call, hooks);
}

// With the test hooks. The space is another one, and so are the types that lead to it.
template <class T, ReduceOp op>
void run_hooked(const AllReduceCall& call) {
  const HookedSpace::Planted planted(call.packet_fault);
  protocol::RegionState<HookedSpace> state{call.state->epoch, call.state->failed, {}};
  const protocol::Control<HookedSpace> control = hooked(call.control);
  protocol::Session session(
      protocol::FlatRegion<HookedSpace>(call.region, call.stride, call.rank, call.layout), exec::SoloCoop{},
      state, control, 0, call.collective);
  run_in<T, op, protocol::kMaxRanks, HookedSpace::Cells<T, op>>(session, call, call.delay);
  call.state->epoch = state.epoch;
  call.state->failed = state.failed;
}

template <class T, ReduceOp op>
void run_ranks(const AllReduceCall& call) {
  if (call.delay.point != DelayPoint::none || call.packet_fault.kind != PacketFault::Kind::none) {
    run_hooked<T, op>(call);
  } else if (call.trace != nullptr) {
    run_traced<T, op>(call);
  } else if (call.layout.nranks <= 2) {
    run<T, op, 2>(call);
  } else {
    run<T, op, protocol::kMaxRanks>(call);
  }
}

template <class T>
void run_op(const AllReduceCall& call) {
  if (call.op == ReduceOp::sum) {
    run_ranks<T, ReduceOp::sum>(call);
  } else {
    run_ranks<T, ReduceOp::max>(call);
  }
}

}  // namespace

void all_reduce(const AllReduceCall& call) {
  if (!has_own_code(call.type, call.op)) return all_reduce_any(call);
  switch (call.type) {
    case DataType::i32:
      return run_op<std::int32_t>(call);
    case DataType::f32:
      return run_op<float>(call);
    case DataType::bf16:
      return run_op<Bf16>(call);
    case DataType::f16:
      return run_ranks<F16, ReduceOp::sum>(call);
    default:
      return;  // has no code of its own
  }
}

}  // namespace nearlight::algorithm::host
