#include "algorithm/host/fused.hpp"

#include "algorithm/fused_rows.hpp"
#include "algorithm/host/parts_session.hpp"
#include "algorithm/sentinel_cell.hpp"

namespace nearlight::algorithm::host {

namespace {

template <class T, class SessionT, class Hooks>
void run_rows(SessionT& session, const FusedCall& call, const Hooks& hooks) {
  using S = typename SessionT::Space;
  exec::SoloTeam team;
  streamed_rows<PackMath<S, T, ReduceOp::sum>, SentinelCell<T>, protocol::kMaxRanks>(
      session, team, RowShare{0, 1, 0, 1}, RowFinish<S, T>(call.rows), hooks);
}

template <class T>
void run_type(const FusedCall& call) {
  const auto work = [&](auto& session, const auto& hooks) { run_rows<T>(session, call, hooks); };
  if (has_test_hooks(call.all)) {
    with_hooked_session(call.all, work);
  } else {
    with_session(call.all, work);
  }
}

}  // namespace

void fused(const FusedCall& call) {
  if (call.all.type == DataType::bf16) {
    run_type<Bf16>(call);
  } else {
    run_type<F16>(call);
  }
}

}  // namespace nearlight::algorithm::host
