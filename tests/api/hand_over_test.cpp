// Calls that are handed to the attached NCCL: what is asked of whom, in which order, and what a refusal does.
// On a stand-in for CUDA and one for NCCL.
#include <gmock/gmock.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>

#include "api/handles.hpp"
#include "route/table_file.hpp"
#include "tests/api/allocations.hpp"
#include "tests/api/fake_group.hpp"
#include "tests/support/table_file.hpp"

namespace nearlight::test {
namespace {

using route::Algorithm;
using runtime::CallOptions;
using testing::HasSubstr;

constexpr std::size_t kBytes = std::size_t{1} << 20;
constexpr std::size_t kFloats = kBytes / sizeof(float);

// What the ranks' stand-ins for NCCL were asked.
struct Asked {
  std::atomic<int> calls{0}, prepared{0}, by_parts{0}, messages{0};
  Collective collective = Collective::barrier;
  std::atomic<std::size_t> prepared_from{0};
  Status answer;              // of calls; set between them
  Status prepare_answer;      // of preparing, on rank 1
  int full_stops_before = 0;  // launches of the full stop that the last call of rank 0 found
  bool looks = false;
  bool meets = false;  // messages wait until both ranks' have begun
  std::atomic<int> begun{0};
  std::size_t count = 0;
  const void* send = nullptr;
  void* recv = nullptr;
  DataType type = DataType::i8;
  ReduceOp op = ReduceOp::sum;
};

class FakeNccl final : public runtime::Fallback {
 public:
  FakeNccl(Asked& asked, int rank, int version) : asked_(asked), rank_(rank), version_(version) {}
  int version() const override { return version_; }
  Status prepare(Exchange& exchange, std::size_t first_bytes, Deadline deadline) override {
    ++asked_.prepared;
    asked_.prepared_from = first_bytes;
    return agree(exchange, rank_ == 1 ? asked_.prepare_answer : Status(), deadline);
  }
  Status all_reduce(const void* send, void* recv, std::size_t count, DataType type, ReduceOp op,
                    runtime::Stream, bool, Deadline) override {
    ++asked_.calls;
    asked_.count = count;
    asked_.send = send;
    asked_.recv = recv;
    asked_.type = type;
    asked_.op = op;
    if (asked_.looks) asked_.full_stops_before = fake_cuda::calls()["launch_full_stop"];
    return asked_.answer;
  }
  Status collective(const runtime::CollectiveCall& call, int nranks, runtime::Stream, bool,
                    Deadline) override {
    ++asked_.by_parts;
    EXPECT_EQ(nranks, 2);
    asked_.collective = call.collective;
    asked_.count = call.count;
    return asked_.answer;
  }
  Status messages(std::span<const runtime::MessageCall> group, runtime::Stream, bool, Deadline,
                  runtime::Rest* rest) override {
    asked_.messages += static_cast<int>(group.size());
    if (!asked_.meets || rest == nullptr) return asked_.answer;
    // As where NCCL connects: the other rank's call is waited for.
    ++asked_.begun;
    *rest = [this] { return asked_.begun == 2 ? asked_.answer : failure(Code::timeout, "nobody came"); };
    return {};
  }

 private:
  Asked& asked_;
  int rank_, version_;
};

class HandOver : public testing::Test {
 protected:
  // `version` of rank 1: that of rank 0 unless given.
  void make(const runtime::Options& options = {}, int version = 22809, int of_rank_1 = 0) {
    pair_ = {};
    pair_.options = options;
    pair_.fallback = [this, version, of_rank_1](int rank) {
      return std::make_unique<FakeNccl>(asked_, rank, rank == 1 && of_rank_1 != 0 ? of_rank_1 : version);
    };
    created_ = create_pair(pair_);
    fake_cuda::reset_calls();
  }
  void make_well(const runtime::Options& options = {}, int version = 22809) {
    make(options, version);
    for (const Created& one : created_) ASSERT_TRUE(one.ok()) << one.status().to_string();
  }
  ~HandOver() override {
    fake_cuda::fail_call(-1);
    ::unsetenv("NEARLIGHT_FORCE_PATH");
    ::unsetenv("NEARLIGHT_ROUTE_TABLE");
  }
  runtime::Communicator& comm() { return **created_[0]; }
  Status call(std::size_t count, const CallOptions& options = by_nccl(), DataType type = DataType::f32,
              ReduceOp op = ReduceOp::sum) {
    return comm().all_reduce(send_.get(), recv_.get(), count, type, op, stream_.handle(), options);
  }
  static CallOptions by_nccl() {
    CallOptions options;
    options.algorithm = Algorithm::nccl;
    return options;
  }
  static int made(const char* name) { return fake_cuda::calls()[name]; }

  Asked asked_;
  FakePair pair_;
  std::vector<Created> created_;
  const FakeMemory send_{0, kBytes}, recv_{0, kBytes};
  fake_cuda::Stream stream_{0, 0};
};

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

TEST_F(HandOver, TheArgumentsAreLookedAtBefore) {
  make_well();
  EXPECT_EQ(
      comm()
          .all_reduce(nullptr, recv_.get(), 1, DataType::f32, ReduceOp::sum, stream_.handle(), by_nccl())
          .code(),
      Code::invalid_argument);
  int plain = 0;
  EXPECT_EQ(comm()
                .all_reduce(&plain, recv_.get(), 1, DataType::f32, ReduceOp::sum, stream_.handle(), by_nccl())
                .code(),
            Code::invalid_argument);
  EXPECT_EQ(asked_.calls, 0);
  EXPECT_TRUE(comm().status().ok());
  EXPECT_TRUE(call(0).ok());
  EXPECT_EQ(asked_.calls, 0);
}

TEST_F(HandOver, WhatIsAskedForAndCannotBeNamesTheArgument) {
  make_well();
  const auto refused = [&](const CallOptions& options, DataType type, ReduceOp op, Code code,
                           const char* word) {
    const Status told = comm().explain_all_reduce(1024, type, op, options).status();
    EXPECT_EQ(told.code(), code) << word;
    EXPECT_THAT(told.text(), HasSubstr(word));
    if (op == ReduceOp::premul_sum) return;  // a call would need a factor
    EXPECT_EQ(call(1024, options, type, op).text(), told.text());
  };
  refused(by_nccl(), DataType::f16, ReduceOp::sum, Code::unsupported,
          "algorithm: nccl: not handed to NCCL: 2.28.3");
  refused(by_nccl(), DataType::f32, ReduceOp::premul_sum, Code::unsupported, "algorithm: nccl");
  CallOptions options = by_nccl();
  options.protocol = route::Protocol::ll;
  refused(options, DataType::f32, ReduceOp::sum, Code::invalid_argument, "protocol: ll");
  options = by_nccl();
  options.grid = 1;
  refused(options, DataType::f32, ReduceOp::sum, Code::unsupported, "algorithm: nccl, with grid");
  options = by_nccl();
  options.threads = 32;
  refused(options, DataType::f32, ReduceOp::sum, Code::unsupported, "algorithm: nccl, with threads");
  EXPECT_EQ(asked_.calls, 0);
  EXPECT_TRUE(comm().status().ok());

  pair_.fallback = {};
  created_ = create_pair(pair_);
  ASSERT_TRUE(created_[0].ok());
  refused(by_nccl(), DataType::f32, ReduceOp::sum, Code::invalid_argument, "algorithm: nccl, but no NCCL");
}

TEST_F(HandOver, ARefusalOfNcclFailsTheCommunicatorWithItsText) {
  make_well();
  asked_.answer = failure(Code::invalid_usage, "ncclAllReduce: says the stand-in");
  const Status status = call(kFloats);
  EXPECT_EQ(status.code(), Code::invalid_usage);
  EXPECT_THAT(status.text(), HasSubstr("says the stand-in"));
  EXPECT_EQ(comm().status().text(), status.text());
  asked_.answer = {};
  // Failed stays failed: nothing is launched and nothing handed over.
  fake_cuda::reset_calls();
  EXPECT_EQ(call(kFloats).text(), status.text());
  EXPECT_EQ(call(kFloats, {}).text(), status.text());
  EXPECT_EQ(asked_.calls, 1);
  EXPECT_EQ(made("launch"), 0);
}

// After "invalid argument" a communicator can be used as before, which this one cannot.
TEST_F(HandOver, WhatNcclCallsAnArgumentIsNone) {
  make_well();
  asked_.answer = failure(Code::invalid_argument, "ncclAllReduce: says the stand-in");
  EXPECT_EQ(call(kFloats).code(), Code::internal_error);
  EXPECT_EQ(comm().status().code(), Code::internal_error);
  EXPECT_THAT(comm().status().text(), HasSubstr("says the stand-in"));
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

TEST_F(HandOver, AnAbortedCommunicatorHandsNothingOver) {
  make_well();
  comm().abort();
  EXPECT_EQ(call(kFloats).code(), Code::aborted);
  EXPECT_EQ(asked_.calls, 0);
}

TEST_F(HandOver, ARefusalInACaptureSpoilsNothingElse) {
  make_well();
  ASSERT_TRUE(call(kFloats).ok());
  stream_.capture = 7;
  ASSERT_TRUE(call(kFloats).ok()) << "captured";
  asked_.answer = failure(Code::internal_error, "ncclAllReduce: says the stand-in");
  EXPECT_FALSE(call(kFloats).ok());
  stream_.capture = 0;
  asked_.answer = {};
  EXPECT_TRUE(comm().status().ok());
  EXPECT_TRUE(call(kFloats).ok());
  EXPECT_TRUE(call(kFloats, {}).ok());
}

TEST_F(HandOver, AFullStopThatIsRefusedFailsTheCommunicator) {
  make_well();
  ASSERT_TRUE(call(kFloats).ok());
  const int before = asked_.calls;
  for (int n = 0; n < 20; ++n) {
    fake_cuda::fail_call(n);
    const Status status = call(kFloats);
    const std::string failed = fake_cuda::failed_call();
    fake_cuda::fail_call(-1);
    if (failed != "launch_full_stop") continue;
    EXPECT_EQ(status.code(), Code::cuda_error);
    EXPECT_THAT(status.text(), HasSubstr("launch_full_stop"));
    EXPECT_EQ(call(kFloats).text(), status.text());
    EXPECT_EQ(asked_.calls, before);
    return;
  }
  FAIL() << "the full stop was never refused";
}

// Ranks that have different versions would decide differently.
TEST_F(HandOver, DifferentVersionsAreRefused) {
  make({}, 22809, 23007);
  for (const Created& one : created_) {
    EXPECT_EQ(one.status().code(), Code::invalid_usage);
    EXPECT_THAT(one.status().text(), HasSubstr("NCCL's version is 22809 on rank 0, 23007 on rank 1"));
  }
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

// fp8 is nobody else's with an old NCCL, which is said.
TEST_F(HandOver, WhatNcclNeverTakesStaysAndIsRefusedOnceTheOwnWayHasFailed) {
  make_well({}, 22300);
  ASSERT_TRUE(comm().set_path("fallback").ok());
  EXPECT_THAT(comm().explain_all_reduce(100, DataType::f8e4m3, ReduceOp::sum).reason, HasSubstr("2.24"));
  ASSERT_TRUE(call(100, {}, DataType::f8e4m3).ok());
  EXPECT_EQ(made("launch"), 1);
  for (int n = 0; n < 20; ++n) {
    fake_cuda::fail_call(n);
    static_cast<void>(call(100, {}, DataType::f8e4m3));
    const bool found = fake_cuda::failed_call() == "launch";
    fake_cuda::fail_call(-1);
    if (found) break;
  }
  const Status sick = comm().status();
  ASSERT_EQ(sick.code(), Code::cuda_error);
  fake_cuda::reset_calls();
  EXPECT_EQ(call(100, {}, DataType::f8e4m3).text(), sick.text());
  const std::size_t counts[2] = {64, 32};
  runtime::CollectiveCall gather{Collective::all_gather_v, send_.get(), recv_.get(), 64, DataType::f32};
  gather.counts = counts;
  EXPECT_EQ(comm().collective(gather, stream_.handle(), {}).text(), sick.text());
  EXPECT_EQ(made("launch") + made("launch_parts"), 0);
  EXPECT_TRUE(call(100, {}).ok()) << "what NCCL takes goes on";
}

// A launch that was refused: nearlight's kernels are out of step for good, NCCL is not.
TEST_F(HandOver, NcclServesWhenOnlyTheOwnWayHasFailed) {
  make_well();
  ASSERT_TRUE(call(kFloats, {}).ok());
  for (int n = 0; n < 20; ++n) {
    fake_cuda::fail_call(n);
    static_cast<void>(call(kFloats, {}));
    const bool found = fake_cuda::failed_call() == "launch";
    fake_cuda::fail_call(-1);
    if (found) break;
  }
  const Status sick = comm().status();
  ASSERT_EQ(sick.code(), Code::cuda_error);
  EXPECT_EQ(call(kFloats, {}).text(), sick.text());
  ASSERT_TRUE(call(kFloats).ok()) << "the call asks for it";
  EXPECT_EQ(asked_.calls, 1);
  for (const char* const path : {"nccl", "fallback"}) {
    ASSERT_TRUE(comm().set_path(path).ok());
    EXPECT_TRUE(call(kFloats, {}).ok());
    EXPECT_TRUE(comm().barrier(stream_.handle()).ok());
  }
  EXPECT_EQ(asked_.calls, 5);
  EXPECT_EQ(comm().status().text(), sick.text());
  CallOptions own;
  own.grid = 1;
  EXPECT_EQ(call(1024, own).text(), sick.text());
  // NCCL itself refuses, or the communicator is told to stop: then it is over.
  comm().abort();
  EXPECT_EQ(call(kFloats, {}).code(), Code::aborted);
  EXPECT_EQ(comm().barrier(stream_.handle()).code(), Code::aborted);
  EXPECT_EQ(asked_.calls, 5);
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
