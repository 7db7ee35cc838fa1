#include "cli/bench/without_limits.hpp"

#include "algorithm/host/bulk.hpp"
#include "algorithm/host/region.hpp"
#include "algorithm/host/run_in.hpp"
#include "algorithm/without_limits.hpp"

namespace nearlight::bench {

namespace {

using algorithm::host::AllReduceCall;
using algorithm::host::Region;

template <class T, int kMax>
void run(const AllReduceCall& call) {
  algorithm::SessionWithoutLimits<Region<kMax>, exec::SoloCoop> session(
      Region<kMax>(call.region, call.stride, call.rank, call.layout), exec::SoloCoop{}, *call.state,
      call.control, 0, call.collective);
  algorithm::host::run_in<T, ReduceOp::sum, kMax, algorithm::host::Bulk<T, ReduceOp::sum>>(
      session, call, algorithm::NoDelay{});
}

template <class T>
void run_ranks(const AllReduceCall& call) {
  call.layout.nranks <= 2 ? run<T, 2>(call) : run<T, protocol::kMaxRanks>(call);
}

// has_code_without_limits() alone.
void on_host(const AllReduceCall& call) {
  call.type == DataType::f32 ? run_ranks<float>(call) : run_ranks<Bf16>(call);
}

}  // namespace

const runtime::Instead& code_without_limits() {
  static constexpr runtime::Instead kCode {
    on_host,
#if NEARLIGHT_HAS_CUDA
        algorithm::cuda::pick_loop_without_limits
#else
        nullptr
#endif
  };
  return kCode;
}

}  // namespace nearlight::bench
