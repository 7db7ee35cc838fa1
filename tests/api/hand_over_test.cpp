// Calls that are handed to the attached NCCL: which, what is asked of whom, and in which order. On a stand-in
// for CUDA and one for NCCL.
#include <gmock/gmock.h>

#include <algorithm>
#include <cstdlib>

#include "api/handles.hpp"
#include "route/table_file.hpp"
#include "tests/api/allocations.hpp"
#include "tests/api/fake_hand_over.hpp"
#include "tests/support/table_file.hpp"

namespace nearlight::test {
namespace {

using route::Algorithm;
using runtime::CallOptions;
using testing::HasSubstr;

TEST_F(HandOver, ACallGoesToNcclInsteadOfAKernel) {
  make_well();
  ASSERT_TRUE(call(kFloats).ok());
  EXPECT_EQ(asked_.calls, 1);
  EXPECT_EQ(asked_.count, kFloats);
  EXPECT_EQ(made("launch"), 0);
  ASSERT_TRUE(call(kFloats, {}).ok());
  EXPECT_EQ(asked_.calls, 1) << "by the shipped table nothing is handed over";
  EXPECT_EQ(made("launch"), 1);
  EXPECT_EQ(asked_.prepared, 0) << "nobody is to be handed anything unasked";
  const runtime::Counters counters = comm().counters();
  EXPECT_EQ(counters.of(Collective::all_reduce), 2u);
  EXPECT_TRUE(std::any_of(counters.routes.begin(), counters.routes.end(), [](const auto& route) {
    return route.algorithm == Algorithm::nccl && route.operations == 1 && route.bytes == kFloats * 4;
  }));
  // Nothing is allocated.
  const std::uint64_t before = allocations_of_this_thread();
  const CallOptions options = by_nccl();
  ASSERT_TRUE(call(kFloats, options).ok());
  EXPECT_EQ(allocations_of_this_thread(), before);
}

// Where all calls do, and for no size; what is for the rank itself stays.
TEST_F(HandOver, MessagesGoToNcclAllOrNone) {
  make_well();
  const auto exchange = [&](std::size_t count, const CallOptions& options = {}) {
    const runtime::MessageCall group[] = {{true, send_.get(), count, DataType::u8, 1},
                                          {false, recv_.get(), count, DataType::u8, 1},
                                          {true, send_.get(), 0, DataType::u8, 1}};
    return comm().messages(group, stream_.handle(), options);
  };
  ASSERT_TRUE(exchange(64).ok());
  EXPECT_EQ(made("launch_messages"), 1);
  EXPECT_EQ(fake_cuda::launched().factor, 2u) << "queues";
  EXPECT_EQ(fake_cuda::launched().grid, 1u);
  ASSERT_TRUE(exchange(64, by_nccl()).ok());
  EXPECT_EQ(asked_.messages, 2);
  ASSERT_TRUE(comm().set_path("nccl").ok());
  ASSERT_TRUE(exchange(64).ok());
  ASSERT_TRUE(exchange(1).ok());
  EXPECT_EQ(asked_.messages, 6);
  EXPECT_EQ(made("launch_messages"), 1);
  ASSERT_TRUE(comm().set_path("simple").ok());
  ASSERT_TRUE(exchange(64).ok());
  EXPECT_EQ(made("launch_messages"), 2);
  EXPECT_EQ(comm().counters().of(Collective::send_recv), 5u);
  // A launch that is refused has taken this rank out of step.
  fake_cuda::fail_call(0);
  EXPECT_FALSE(exchange(64).ok());
  fake_cuda::fail_call(-1);
}

// Both GPU ranks of a group are driven by this thread. NCCL connects them at their first messages, in each of
// which it waits for the other's.
TEST_F(HandOver, MessagesOfBothRanksOfOneThreadBeginBeforeEitherWaits) {
  make_well();
  std::vector<nearlightComm_t> comms;
  for (Created& one : created_) {
    ASSERT_TRUE(one.value()->set_path("nccl").ok());
    auto handle = api::add_handle(std::move(*one));
    ASSERT_TRUE(handle.ok());
    comms.push_back(*handle);
  }
  const FakeMemory of_rank_1(1, kBytes);
  fake_cuda::Stream other{1, 0};
  const auto exchange = [&] {
    EXPECT_EQ(nearlightGroupStart(), nearlightSuccess);
    EXPECT_EQ(nearlightSend(send_.get(), 64, nearlightUint8, 1, comms[0], stream_.handle()),
              nearlightSuccess);
    EXPECT_EQ(nearlightRecv(of_rank_1.get(), 64, nearlightUint8, 0, comms[1], other.handle()),
              nearlightSuccess);
    return nearlightGroupEnd();
  };
  asked_.meets = true;
  EXPECT_EQ(exchange(), nearlightSuccess) << nearlightGetLastError();
  EXPECT_EQ(asked_.messages, 2);
  for (const nearlightComm_t comm : comms) {
    nearlightCounters_t counters = NEARLIGHT_COUNTERS_INITIALIZER;
    EXPECT_EQ(nearlightCommGetCounters(comm, &counters), nearlightSuccess);
    EXPECT_EQ(counters.send_recvs, 1u);
  }
  // Where one of them does not come in time the end tells.
  asked_.begun = -1;
  asked_.answer = {};
  EXPECT_EQ(exchange(), nearlightTimeout);
  EXPECT_THAT(nearlightGetLastError(), HasSubstr("nearlightGroupEnd on rank 0: nobody came"));
  for (const nearlightComm_t comm : comms) EXPECT_EQ(nearlightCommDestroy(comm), nearlightSuccess);
}

TEST_F(HandOver, TheOtherCollectivesGoToNcclAsWell) {
  make_well();
  const auto by_parts = [&](Collective collective, DataType type, const CallOptions& options) {
    return comm().collective({collective, send_.get(), recv_.get(), 64, type}, stream_.handle(), options);
  };
  int calls = 0;
  for (const Collective collective : kCollectives) {
    if (!goes_by_parts(collective) || is_uneven(collective)) continue;
    ASSERT_TRUE(by_parts(collective, DataType::f32, by_nccl()).ok());
    EXPECT_EQ(asked_.by_parts, ++calls);
    EXPECT_EQ(asked_.collective, collective);
    EXPECT_EQ(asked_.count, 64u);
    EXPECT_EQ(made("launch_parts"), 0);
  }
  // NCCL may add small types wrongly; moved ones are bytes to it.
  EXPECT_TRUE(by_parts(Collective::all_gather, DataType::bf16, by_nccl()).ok());
  EXPECT_EQ(by_parts(Collective::reduce_scatter, DataType::bf16, by_nccl()).code(), Code::unsupported);
  ASSERT_TRUE(by_parts(Collective::all_gather, DataType::f32, {}).ok());
  EXPECT_EQ(made("launch_parts"), 1);
  ASSERT_TRUE(comm().set_path("nccl").ok());
  const auto route = comm().explain({Collective::broadcast, nullptr, nullptr, 64, DataType::f32});
  ASSERT_TRUE(route.ok());
  EXPECT_EQ(route->algorithm, Algorithm::nccl);
  ASSERT_TRUE(by_parts(Collective::broadcast, DataType::f32, {}).ok());
  EXPECT_EQ(made("launch_parts"), 1);
  // A refusal of NCCL's has taken this rank out of step.
  asked_.answer = failure(Code::internal_error, "ncclBroadcast: says the stand-in");
  EXPECT_EQ(by_parts(Collective::broadcast, DataType::f32, {}).code(), Code::internal_error);
  EXPECT_FALSE(comm().status().ok());
}

// Versions whose kernels do not wait for the kernel in front of them get a full stop there, others none.
TEST_F(HandOver, AFullStopBeforeNcclWhereItDoesNotWait) {
  asked_.looks = true;
  for (const int version : {22809, 23007}) {
    make_well({}, version);
    ASSERT_TRUE(call(kFloats).ok());
    EXPECT_EQ(asked_.full_stops_before, version == 22809 ? 1 : 0);
    ASSERT_TRUE(call(kFloats, {}).ok());
    EXPECT_EQ(made("launch_full_stop"), version == 22809 ? 1 : 0);
  }
}

TEST_F(HandOver, IsInTheRouteLog) {
  ::setenv("NEARLIGHT_DEBUG", "route", 1);
  testing::internal::CaptureStderr();
  make_well();
  ASSERT_TRUE(call(kFloats).ok());
  ::unsetenv("NEARLIGHT_DEBUG");
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              HasSubstr("2 ranks: nccl none, 0 x 0: the caller asked for this algorithm"));
}

TEST_F(HandOver, ForcedByTheVariableAndSetUpAtCreation) {
  ::setenv("NEARLIGHT_FORCE_PATH", "nccl", 1);
  make_well();
  EXPECT_EQ(asked_.prepared, 2);
  ASSERT_TRUE(call(kFloats, {}).ok());
  EXPECT_EQ(asked_.calls, 1);
  // What NCCL is not handed runs here; what is forced by the call as well.
  ASSERT_TRUE(call(1024, {}, DataType::bf16).ok());
  EXPECT_THAT(comm().explain_all_reduce(1024, DataType::bf16, ReduceOp::sum).reason, HasSubstr("not handed"));
  CallOptions here;
  here.protocol = route::Protocol::simple;
  ASSERT_TRUE(call(kFloats, here).ok());
  here = {};
  here.grid = 1;
  ASSERT_TRUE(call(1024, here).ok());
  EXPECT_EQ(asked_.calls, 1);
  EXPECT_EQ(made("launch"), 3);

  asked_.prepare_answer = failure(Code::timeout, "ncclAllReduce: nobody came");
  make();
  for (const Created& one : created_) {
    ASSERT_FALSE(one.ok());
    EXPECT_THAT(one.status().text(), HasSubstr("nobody came"));
  }
  pair_.fallback = {};
  created_ = create_pair(pair_);
  for (const Created& one : created_) {
    EXPECT_EQ(one.status().code(), Code::invalid_argument);
    EXPECT_THAT(one.status().text(), HasSubstr("NEARLIGHT_FORCE_PATH"));
  }
}

TEST_F(HandOver, ByTheTableAndSetUpAtCreation) {
  route::Table table = route::kH200Table;
  table.nccl_first_bytes = 512 * 1024;
  const TableInForce in_force(route::table_text(table, {true, "", 2}, "a test"));
  make_well();
  EXPECT_EQ(asked_.prepared, 2);
  EXPECT_EQ(asked_.prepared_from, 512u * 1024);
  ASSERT_TRUE(call(kFloats, {}).ok());
  EXPECT_EQ(asked_.calls, 1);
  ASSERT_TRUE(call(512 * 1024 / sizeof(float) - 1, {}).ok());
  EXPECT_EQ(asked_.calls, 1);
  EXPECT_EQ(made("launch"), 1);
}

// "fallback" moves what "nccl" alone leaves here: what NCCL does wrongly at some addresses has another
// address, and what it has not is made of what it has.
TEST_F(HandOver, AsAFallbackItTakesEveryCall) {
  runtime::Options options;
  options.regions = 64;
  options.max_ctas = 3;
  make_well(options);
  ASSERT_TRUE(comm().set_path("fallback").ok());
  ASSERT_TRUE(call(kFloats, {}).ok());
  EXPECT_EQ(asked_.calls, 1);
  EXPECT_EQ(asked_.send, send_.get());
  EXPECT_EQ(asked_.recv, recv_.get());

  ASSERT_TRUE(call(1000, {}, DataType::bf16).ok());
  EXPECT_EQ(asked_.calls, 2);
  EXPECT_EQ(asked_.type, DataType::bf16);
  EXPECT_EQ(asked_.send, asked_.recv);
  EXPECT_NE(asked_.recv, recv_.get());
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(asked_.recv) % 256, 0u);
  EXPECT_EQ(made("cudaMemcpyAsync"), 2) << "there and back";
  ASSERT_TRUE(call(128 * 1024 / 2, {}, DataType::bf16).ok());
  EXPECT_EQ(asked_.recv, recv_.get()) << "beyond what NCCL does wrongly";

  const float factor = 3;
  ASSERT_TRUE(comm()
                  .all_reduce(send_.get(), recv_.get(), 100, DataType::f32,
                              Reduction::premul_sum(DataType::f32, &factor), stream_.handle(), {})
                  .ok());
  EXPECT_EQ(made("launch_alone"), 1);
  EXPECT_EQ(asked_.calls, 4);
  EXPECT_EQ(asked_.op, ReduceOp::sum);
  EXPECT_EQ(asked_.send, recv_.get());

  ASSERT_TRUE(comm().barrier(stream_.handle()).ok());
  EXPECT_EQ(asked_.calls, 5);
  EXPECT_EQ(asked_.count, 1u);
  EXPECT_EQ(made("launch"), 0);
  EXPECT_EQ(made("launch_barrier"), 0);

  // So do the other collectives, whatever max_ctas says, but for what hand-over.md lists.
  const auto route_of = [&](Collective collective, DataType type, Reduction op = ReduceOp::sum) {
    runtime::CollectiveCall parts{collective, send_.get(), recv_.get(), 64, type};
    parts.op = op;
    const std::size_t counts[2] = {64, 32};
    parts.send_counts = parts.counts = counts;
    const auto route = comm().explain(parts, {});
    EXPECT_TRUE(route.ok()) << route.status().to_string();
    return route.ok() ? *route : route::Route();
  };
  int by_parts = 0;
  for (const Collective collective : kCollectives) {
    if (!goes_by_parts(collective) || is_uneven(collective)) continue;
    EXPECT_EQ(route_of(collective, DataType::f32).algorithm, Algorithm::nccl) << name_of(collective);
    ASSERT_TRUE(
        comm()
            .collective({collective, send_.get(), recv_.get(), 64, DataType::f32}, stream_.handle(), {})
            .ok());
    EXPECT_EQ(asked_.by_parts, ++by_parts);
  }
  EXPECT_THAT(route_of(Collective::reduce_scatter, DataType::bf16).reason, HasSubstr("2.28.3"));
  EXPECT_THAT(
      route_of(Collective::reduce, DataType::f32, Reduction::premul_sum(DataType::f32, &factor)).reason,
      HasSubstr("pre-multiplied"));
  for (const Collective collective :
       {Collective::all_gather_v, Collective::reduce_scatter_v, Collective::all_to_all_v}) {
    const route::Route route = route_of(collective, DataType::f32);
    EXPECT_NE(route.algorithm, Algorithm::nccl);
    EXPECT_THAT(route.reason, HasSubstr("parts of any size")) << name_of(collective);
  }

  // "nccl" alone says why it keeps a call, and the barrier goes there.
  ASSERT_TRUE(comm().set_path("nccl").ok());
  EXPECT_THAT(comm().explain_all_reduce(1000, DataType::bf16, ReduceOp::sum).reason, HasSubstr("not handed"));
  EXPECT_THAT(comm().set_path("staged").text(), HasSubstr("nccl or fallback"));
  ASSERT_TRUE(comm().set_path("").ok());
  ASSERT_TRUE(comm().barrier(stream_.handle()).ok());
  EXPECT_EQ(made("launch_barrier"), 1);
}

// The kernel gets no more CTAs, whatever the protocol, and one rank's no more either.
TEST_F(HandOver, MaxCtasIsTheLaunchsToo) {
  runtime::Options options;
  options.regions = 64;
  options.max_ctas = 3;
  make_well(options);
  for (const route::Protocol protocol : algorithm::kProtocols) {
    if (protocol == route::Protocol::ll128) continue;  // these GPUs have no lines
    CallOptions here;
    here.protocol = protocol;
    ASSERT_TRUE(call(kFloats, here).ok());
    EXPECT_EQ(fake_cuda::launched().grid, 3u);
    EXPECT_EQ(comm().explain_all_reduce(kFloats, DataType::f32, ReduceOp::sum, here)->grid, 3u);
  }
  CallOptions more;
  more.grid = 4;
  EXPECT_THAT(call(kFloats, more).text(), HasSubstr("grid: 4 CTAs, but max_ctas is 3"));
  EXPECT_EQ(comm().epochs()->size(), 64u);
  EXPECT_THAT(call(kFloats).text(), HasSubstr("max_ctas"));
  // Where their number is not given there are no more regions than that.
  options.regions = 0;
  make_well(options);
  EXPECT_EQ(comm().epochs()->size(), 3u);
  more.grid = 3;
  EXPECT_TRUE(call(kFloats, more).ok());
}

}  // namespace
}  // namespace nearlight::test
