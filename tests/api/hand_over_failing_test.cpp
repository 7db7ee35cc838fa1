// Calls that should be handed to the attached NCCL and cannot be, are refused there, or go on there when the
// ranks' own way has failed. On a stand-in for CUDA and one for NCCL.
#include <gmock/gmock.h>

#include "tests/api/fake_hand_over.hpp"

namespace nearlight::test {
namespace {

using route::Algorithm;
using runtime::CallOptions;
using testing::HasSubstr;

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

}  // namespace
}  // namespace nearlight::test
