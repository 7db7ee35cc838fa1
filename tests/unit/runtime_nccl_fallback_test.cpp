// What NCCL is asked for a call that is handed over, and what becomes of its answer. On a library that looks
// like NCCL as far as it goes.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <string>

#include "memory/nccl_api.hpp"
#include "runtime/nccl_fallback.hpp"

namespace nearlight::runtime {
namespace {

// As in memory_fake_nccl.c.
struct FakeCall {
  const void* send;
  void* recv;
  std::size_t count;
  int type, op;
  void *comm, *stream;
  int calls, result, progress_polls;
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
    return fallback_->all_reduce(&send_, &recv_, 17, type, op, &stream_, Deadline::after(limit));
  }

  void* library_ = nullptr;
  FakeCall* fake_ = nullptr;
  ncclComm* comm_ = nullptr;
  std::unique_ptr<Fallback> fallback_;
  int send_ = 0, recv_ = 0, stream_ = 0;
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
      EXPECT_EQ(fake_->stream, &stream_);
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

}  // namespace
}  // namespace nearlight::runtime
