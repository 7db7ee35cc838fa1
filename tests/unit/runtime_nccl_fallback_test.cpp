// What NCCL is asked for a call that is handed over, and what becomes of its answer. On a library that looks
// like NCCL as far as it goes.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>

#include "memory/nccl_api.hpp"
#include "runtime/nccl_fallback.hpp"
#include "tests/api/fake_cuda.hpp"

namespace nearlight::runtime {
namespace {

// As in memory_fake_nccl.c.
struct FakeCall {
  const void* send;
  void* recv;
  std::size_t count;
  int type, op;
  void *comm, *stream;
  int calls, result, progress_polls, hold, waiting;
};

class NcclFallback : public testing::Test {
 protected:
  void SetUp() override {
    library_ = ::dlopen(FAKE_NCCL, RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(library_, nullptr) << ::dlerror();
    fake_ = static_cast<FakeCall*>(::dlsym(library_, "fake_call"));
    ASSERT_NE(fake_, nullptr);
    *fake_ = {};
    ::setenv("NEARLIGHT_NCCL_LIB", FAKE_NCCL, 1);
    const auto nccl = memory::Nccl::attached();
    ASSERT_TRUE(nccl.ok()) << nccl.status().to_string();
    const auto comm = (*nccl)->comm_init_rank(2, {}, 0);
    ASSERT_TRUE(comm.ok());
    comm_ = *comm;
    fallback_ = make_nccl_fallback(**nccl, comm_, 0);
  }
  Status call(DataType type, ReduceOp op, std::chrono::milliseconds limit = std::chrono::seconds(60)) {
    return fallback_->all_reduce(&send_, &recv_, count_, type, op, stream_, capturing_,
                                 Deadline::after(limit));
  }
  int waiting() const { return __atomic_load_n(&fake_->waiting, __ATOMIC_SEQ_CST); }
  void hold(bool holds) { __atomic_store_n(&fake_->hold, holds ? 1 : 0, __ATOMIC_SEQ_CST); }

  void* library_ = nullptr;
  FakeCall* fake_ = nullptr;
  ncclComm* comm_ = nullptr;
  std::unique_ptr<Fallback> fallback_;
  int send_ = 0, recv_ = 0;
  test::fake_cuda::Stream own_stream_{0, 0};
  runtime::Stream stream_ = own_stream_.handle();
  std::size_t count_ = 17;
  bool capturing_ = false;
};

TEST_F(NcclFallback, PassesEveryTypeAndOperatorByItsNumber) {
  EXPECT_EQ(fallback_->version(), 22809);
  int calls = 0;
  for (const DataType type : kDataTypes) {
    for (const ReduceOp op : {ReduceOp::sum, ReduceOp::prod, ReduceOp::max, ReduceOp::min, ReduceOp::avg}) {
      ASSERT_TRUE(call(type, op).ok());
      EXPECT_EQ(fake_->calls, ++calls);
      EXPECT_EQ(fake_->send, &send_);
      EXPECT_EQ(fake_->recv, &recv_);
      EXPECT_EQ(fake_->count, 17u);
      EXPECT_EQ(fake_->type, static_cast<int>(type));
      EXPECT_EQ(fake_->op, static_cast<int>(op));
      EXPECT_EQ(fake_->comm, comm_);
      EXPECT_EQ(fake_->stream, stream_);
    }
  }
}

TEST_F(NcclFallback, ARefusalCarriesNcclsText) {
  fake_->result = 5;
  const Status status = call(DataType::f32, ReduceOp::sum);
  EXPECT_EQ(status.code(), Code::invalid_usage);
  for (const char* word :
       {"ncclAllReduce", "invalid usage, says the fake", "the fake's last words", "2.28.9"}) {
    EXPECT_NE(status.text().find(word), std::string::npos) << status.text();
  }
}

// A non-blocking communicator enqueues later: the call returns when it has, or at its limit.
TEST_F(NcclFallback, FollowsACommunicatorThatEnqueuesLater) {
  fake_->result = 7;
  fake_->progress_polls = 5;
  EXPECT_TRUE(call(DataType::f32, ReduceOp::sum).ok());
  EXPECT_EQ(fake_->progress_polls, 0);
  EXPECT_EQ(fake_->calls, 1);
  fake_->progress_polls = 1 << 30;
  const Status late = call(DataType::f32, ReduceOp::sum, std::chrono::milliseconds(20));
  EXPECT_EQ(late.code(), Code::timeout) << late.to_string();
  EXPECT_NE(late.text().find("ncclAllReduce"), std::string::npos);
  // And what goes wrong meanwhile is told.
  fake_->progress_polls = 0;
  EXPECT_EQ(call(DataType::f32, ReduceOp::sum).code(), Code::remote_error);
}

// A blocking communicator connects on the host at the first call of a kind, for which it waits for the other
// ranks' without a limit of its own.
TEST_F(NcclFallback, TheFirstCallOfAKindHasALimit) {
  hold(true);
  const auto begin = std::chrono::steady_clock::now();
  const Status late = call(DataType::f32, ReduceOp::sum, std::chrono::milliseconds(50));
  EXPECT_EQ(late.code(), Code::timeout) << late.to_string();
  for (const char* word : {"ncclAllReduce", "not all ranks came in time", "aborted"})
    EXPECT_NE(late.text().find(word), std::string::npos) << late.text();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(30));
  EXPECT_EQ(waiting(), 1) << "what NCCL waits for is left behind";
  hold(false);
  while (waiting() != 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

// Only the first: a thread for each call would be dear. Other sizes, types and operators may be other kinds.
TEST_F(NcclFallback, CallsOfAKindThatIsConnectedAreMadeInPlace) {
  using std::chrono::milliseconds;
  ASSERT_TRUE(call(DataType::f32, ReduceOp::sum).ok());
  // In place the call waits for as long as NCCL does: until another thread lets it go, whatever the limit.
  const auto made_in_place = [this](DataType type, ReduceOp op) {
    hold(true);
    std::thread lets_go([this] {
      std::this_thread::sleep_for(milliseconds(300));
      hold(false);
    });
    const Status status = call(type, op, milliseconds(50));
    lets_go.join();
    while (waiting() != 0) std::this_thread::sleep_for(milliseconds(1));
    return status.ok();
  };
  EXPECT_TRUE(made_in_place(DataType::f32, ReduceOp::sum));
  EXPECT_FALSE(made_in_place(DataType::f32, ReduceOp::max));
  EXPECT_FALSE(made_in_place(DataType::bf16, ReduceOp::sum));
  // NCCL's choice may change at any size.
  count_ = 18;
  EXPECT_FALSE(made_in_place(DataType::f32, ReduceOp::sum)) << "of another size";
  ASSERT_TRUE(call(DataType::f32, ReduceOp::sum).ok());
  EXPECT_TRUE(made_in_place(DataType::f32, ReduceOp::sum));
  count_ = 17;
  EXPECT_TRUE(made_in_place(DataType::f32, ReduceOp::sum)) << "still known";
}

// More sizes than are kept: the first ones are made with a limit again, and nothing grows.
TEST_F(NcclFallback, ItKeepsSoManyKindsAndNoMore) {
  for (count_ = 1; count_ <= 4097; ++count_) ASSERT_TRUE(call(DataType::f32, ReduceOp::sum).ok());
  const auto begins_anew = [this](std::size_t count) {
    count_ = count;
    hold(true);
    const bool timed_out =
        call(DataType::f32, ReduceOp::sum, std::chrono::milliseconds(20)).code() == Code::timeout;
    hold(false);
    while (waiting() != 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return timed_out;
  };
  EXPECT_TRUE(begins_anew(1));
  EXPECT_TRUE(begins_anew(4096));
}

// Two ranks of one thread, whose first messages wait for each other inside NCCL: both begin before either is
// waited for.
TEST_F(NcclFallback, FirstMessagesOfOneThreadsRanksGoTogether) {
  const auto nccl = memory::Nccl::attached();
  ASSERT_TRUE(nccl.ok());
  const auto other = make_nccl_fallback(**nccl, comm_, 1);
  const MessageCall to_1{true, &send_, 1, DataType::i32, 1}, from_0{false, &recv_, 1, DataType::i32, 0};
  const Deadline deadline = Deadline::after(std::chrono::seconds(60));
  hold(true);  // until both are there, as NCCL
  Rest first, second;
  ASSERT_TRUE(fallback_->messages({&to_1, 1}, stream_, false, deadline, &first).ok());
  ASSERT_TRUE(other->messages({&from_0, 1}, stream_, false, deadline, &second).ok());
  ASSERT_TRUE(first && second);
  while (waiting() != 2 && !deadline.passed()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_EQ(waiting(), 2);
  hold(false);
  EXPECT_TRUE(first().ok());
  EXPECT_TRUE(second().ok());
  // From here on they are made in place, and there is nothing to wait for.
  Rest none;
  EXPECT_TRUE(fallback_->messages({&to_1, 1}, stream_, false, deadline, &none).ok());
  EXPECT_FALSE(none);
  EXPECT_EQ(fake_->calls, 3);
}

// What nobody else sends for: the second half tells.
TEST_F(NcclFallback, TheSecondHalfHasTheLimit) {
  const MessageCall to_1{true, &send_, 1, DataType::i32, 1};
  hold(true);
  Rest rest;
  ASSERT_TRUE(
      fallback_->messages({&to_1, 1}, stream_, false, Deadline::after(std::chrono::milliseconds(50)), &rest)
          .ok());
  EXPECT_EQ(rest().code(), Code::timeout);
  hold(false);
  while (waiting() != 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

// A failed first call has connected nothing.
TEST_F(NcclFallback, AFirstCallThatIsRefusedIsNoFirstCall) {
  fake_->result = 5;
  EXPECT_EQ(call(DataType::f32, ReduceOp::sum).code(), Code::invalid_usage);
  fake_->result = 0;
  hold(true);
  EXPECT_EQ(call(DataType::f32, ReduceOp::sum, std::chrono::milliseconds(50)).code(), Code::timeout);
  hold(false);
  while (waiting() != 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

// A capture belongs to its thread.
TEST_F(NcclFallback, ACapturedCallIsMadeInPlace) {
  capturing_ = true;
  ASSERT_TRUE(call(DataType::f32, ReduceOp::sum, std::chrono::milliseconds(0)).ok());
  EXPECT_EQ(fake_->calls, 1);
}

// The handle of a thread's own stream means another one in the thread that makes the call.
TEST_F(NcclFallback, AThreadsOwnStreamIsJoinedByEvents) {
  stream_ = cudaStreamPerThread;
  test::fake_cuda::reset_calls();
  ASSERT_TRUE(call(DataType::f32, ReduceOp::sum).ok());
  EXPECT_NE(fake_->stream, cudaStreamPerThread);
  auto calls = test::fake_cuda::calls();
  EXPECT_EQ(calls["cudaEventRecord"], 2);
  EXPECT_EQ(calls["cudaStreamWaitEvent"], 2);
  ASSERT_TRUE(call(DataType::f32, ReduceOp::sum).ok());
  EXPECT_EQ(fake_->stream, cudaStreamPerThread) << "from the second on in place";
}

}  // namespace
}  // namespace nearlight::runtime
