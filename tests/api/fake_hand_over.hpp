// Two GPU ranks that have somebody to hand calls to: a stand-in for CUDA and one for NCCL.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <vector>

#include "tests/api/fake_group.hpp"

namespace nearlight::test {

inline constexpr std::size_t kBytes = std::size_t{1} << 20;
inline constexpr std::size_t kFloats = kBytes / sizeof(float);

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
  Status call(std::size_t count, const runtime::CallOptions& options = by_nccl(),
              DataType type = DataType::f32, ReduceOp op = ReduceOp::sum) {
    return comm().all_reduce(send_.get(), recv_.get(), count, type, op, stream_.handle(), options);
  }
  static runtime::CallOptions by_nccl() {
    runtime::CallOptions options;
    options.algorithm = route::Algorithm::nccl;
    return options;
  }
  static int made(const char* name) { return fake_cuda::calls()[name]; }

  Asked asked_;
  FakePair pair_;
  std::vector<Created> created_;
  const FakeMemory send_{0, kBytes}, recv_{0, kBytes};
  fake_cuda::Stream stream_{0, 0};
};

}  // namespace nearlight::test
