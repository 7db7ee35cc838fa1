// Calls of GPU ranks that the CPU makes, on a stand-in for CUDA whose kernels do at once what they are to do:
// the one that asks the host waits for its answer.
#include <gmock/gmock.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <thread>

#include <nearlight/detail/exec/host_space.hpp>
#include "runtime/host_communicator.hpp"
#include "runtime/staged_path.hpp"
#include "tests/api/fake_group.hpp"

namespace nearlight::test {
namespace {

using route::Algorithm;
using runtime::CallOptions;
using runtime::Communicator;
using std::chrono::milliseconds;
using testing::HasSubstr;

constexpr std::size_t kMostBytes = (std::size_t{2} << 20) + 4096;  // more than is staged at a time

class Staged : public testing::Test {
 protected:
  void make(milliseconds timeout = std::chrono::seconds(60)) {
    pair_ = {};
    pair_.options.timeout = timeout;
    created_ = create_pair(pair_);
    for (const Created& one : created_) ASSERT_TRUE(one.ok()) << one.status().to_string();
    fake_cuda::reset_calls();
  }
  ~Staged() override {
    fake_cuda::fail_call(-1);
    ::unsetenv("NEARLIGHT_FORCE_PATH");
  }
  Communicator& comm(int rank = 0) { return **created_[static_cast<std::size_t>(rank)]; }
  // Both ranks, each in a thread of its own.
  void both(const std::function<void(int rank)>& body) {
    std::thread other([&] { body(1); });
    body(0);
    other.join();
  }
  void both_set(const char* path) {
    for (int rank = 0; rank < 2; ++rank) {
      const Status status = comm(rank).set_path(path);
      EXPECT_TRUE(status.ok()) << status.to_string();
    }
  }
  float* send(int rank) { return static_cast<float*>(send_[rank].get()); }
  float* recv(int rank) { return static_cast<float*>(recv_[rank].get()); }
  Status call(int rank, std::size_t count, const CallOptions& options = {}) {
    return comm(rank).all_reduce(send(rank), recv(rank), count, DataType::f32, ReduceOp::sum,
                                 stream_[rank].handle(), options);
  }
  // The sum that both make of `count` floats, looked at on both.
  void expect_right(std::size_t count, const CallOptions& options = {}) {
    both([&](int rank) {
      for (std::size_t i = 0; i < count; ++i) {
        send(rank)[i] = static_cast<float>(i % 1000 + 1000 * static_cast<std::size_t>(rank));
        recv(rank)[i] = -1;
      }
      const Status status = call(rank, count, options);
      EXPECT_TRUE(status.ok()) << status.to_string();
      std::size_t wrong = 0;
      for (std::size_t i = 0; i < count; ++i)
        wrong += recv(rank)[i] != static_cast<float>(2 * (i % 1000) + 1000) ? 1 : 0;
      EXPECT_EQ(wrong, 0u) << "of " << count << " on rank " << rank;
    });
  }
  // A call of rank 0 in which CUDA refuses `what`.
  Status refuse(const std::string& what, std::size_t count) {
    for (int n = 0; n < 20; ++n) {
      fake_cuda::fail_call(n);
      Status status = call(0, count);
      const std::string failed = fake_cuda::failed_call();
      fake_cuda::fail_call(-1);
      if (failed == what) return status;
    }
    ADD_FAILURE() << what << " was never refused";
    return {};
  }
  static int made(const char* name) { return fake_cuda::calls()[name]; }

  FakePair pair_;
  std::vector<Created> created_;
  const FakeMemory send_[2]{{0, kMostBytes}, {1, kMostBytes}}, recv_[2]{{0, kMostBytes}, {1, kMostBytes}};
  fake_cuda::Stream stream_[2]{{0, 0}, {1, 0}};
};

TEST_F(Staged, MovesCallsToTheCpuAndBack) {
  make();
  for (const char* const path : {"staged", "fallback"}) {
    both_set(path);
    const route::Route route = comm().explain_all_reduce(1000, DataType::f32, ReduceOp::sum);
    EXPECT_EQ(route.algorithm, Algorithm::staged);
    EXPECT_THAT(route.reason, HasSubstr("nearlightCommSetPath"));
    for (const std::size_t count : {std::size_t{1}, std::size_t{333}, kMostBytes / sizeof(float)})
      expect_right(count);
    EXPECT_EQ(made("launch"), 0);
    EXPECT_EQ(made("launch_host_turn"), 2 * (1 + 1 + 3)) << "a MiB at a time";
    both_set("");
    for (int rank = 0; rank < 2; ++rank) {
      EXPECT_TRUE(call(rank, 333).ok());
    }
    EXPECT_EQ(made("launch"), 2);
    EXPECT_EQ(made("launch_host_turn"), 10);
    fake_cuda::reset_calls();
  }
  const runtime::Counters counters = comm().counters();
  std::uint64_t staged = 0;
  for (const auto& taken : counters.routes)
    staged += taken.algorithm == Algorithm::staged ? taken.operations : 0;
  EXPECT_EQ(staged, 6u);
}

TEST_F(Staged, IsForcedByTheVariableToo) {
  ::setenv("NEARLIGHT_FORCE_PATH", "fallback", 1);
  make();
  expect_right(100);
  EXPECT_EQ(made("launch"), 0);
  EXPECT_EQ(made("launch_host_turn"), 2);
}

TEST_F(Staged, ACallCanAskForIt) {
  make();
  CallOptions options;
  options.algorithm = Algorithm::staged;
  expect_right(100, options);
  options.grid = 1;
  EXPECT_EQ(call(0, 100, options).code(), Code::unsupported);
  options.grid = 0;
  options.protocol = route::Protocol::ll;
  EXPECT_THAT(call(0, 100, options).text(), HasSubstr("protocol: ll, but staged chooses its own"));
  EXPECT_TRUE(comm().status().ok());
}

TEST_F(Staged, InPlaceAndAPreMultipliedSum) {
  make();
  both_set("staged");
  both([&](int rank) {
    auto* const data = static_cast<std::int32_t*>(recv_[rank].get());
    for (int i = 0; i < 100; ++i) data[i] = i;
    const std::int32_t factor = rank + 2;
    const Status status =
        comm(rank).all_reduce(data, data, 100, DataType::i32, Reduction::premul_sum(DataType::i32, &factor),
                              stream_[rank].handle(), {});
    EXPECT_TRUE(status.ok()) << status.to_string();
    for (int i = 0; i < 100; ++i) EXPECT_EQ(data[i], 5 * i);
  });
}

// Nobody's goes through before both have come to theirs.
TEST_F(Staged, ABarrierWaits) {
  make();
  both_set("staged");
  std::atomic<bool> came{false};
  both([&](int rank) {
    if (rank == 1) {
      std::this_thread::sleep_for(milliseconds(50));
      came = true;
    }
    EXPECT_TRUE(comm(rank).barrier(stream_[rank].handle()).ok());
    EXPECT_TRUE(came);
  });
  EXPECT_EQ(made("launch_barrier"), 0);
}

// A launch that is refused has taken the ranks' own way out of step; the CPU's goes on.
TEST_F(Staged, TakesOverWhenOnlyTheGpusWayHasFailed) {
  make();
  ASSERT_TRUE(call(0, 333).ok());
  EXPECT_EQ(refuse("launch", 333).code(), Code::cuda_error);
  const Status sick = comm().status();
  ASSERT_EQ(sick.code(), Code::cuda_error);
  EXPECT_EQ(call(0, 333).text(), sick.text());
  EXPECT_EQ(comm().barrier(stream_[0].handle()).text(), sick.text());
  both_set("fallback");
  expect_right(333);
  both([&](int rank) { EXPECT_TRUE(comm(rank).barrier(stream_[rank].handle()).ok()); });
  EXPECT_EQ(comm().status().text(), sick.text()) << "it is still to be told";
  // What only kernels can do is still refused.
  CallOptions own;
  own.protocol = route::Protocol::ll;
  EXPECT_EQ(call(0, 333, own).text(), sick.text());
  both_set("");
  EXPECT_EQ(call(0, 333).text(), sick.text());
  both([&](int rank) {
    const Status status = comm(rank).reset();
    EXPECT_TRUE(status.ok()) << status.to_string();
  });
  EXPECT_TRUE(comm().status().ok());
  EXPECT_TRUE(call(0, 333).ok());
  both_set("staged");
  expect_right(333);
}

TEST_F(Staged, NamesWhoDoesNotComeAndComesBack) {
  make(milliseconds(300));
  both_set("staged");
  static_cast<void>(call(0, 10));  // the stand-in returns when the kernel would have ended
  const Status status = comm().status();
  EXPECT_EQ(status.code(), Code::timeout);
  EXPECT_THAT(status.text(), HasSubstr("rank 1"));
  EXPECT_THAT(status.text(), HasSubstr("; rank 1 has made no call"));
  EXPECT_THAT(comm().dump(), HasSubstr("rank 0 has failed (timeout: it missed rank 1)"));
  ASSERT_TRUE(comm().fault().has_value());
  EXPECT_EQ(comm().fault()->peer, 1);
  EXPECT_EQ(call(0, 10).text(), status.text());
  both([&](int rank) { EXPECT_TRUE(comm(rank).reset().ok()); });
  EXPECT_TRUE(comm().status().ok());
  expect_right(1000);
}

TEST_F(Staged, AbortEndsAWaitAndEveryWay) {
  make(std::chrono::seconds(600));
  both_set("staged");
  std::thread aborting([&] {
    std::this_thread::sleep_for(milliseconds(50));
    comm(0).abort();
  });
  const auto begin = std::chrono::steady_clock::now();
  static_cast<void>(call(0, 10));
  aborting.join();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(60));
  EXPECT_EQ(comm().status().code(), Code::aborted);
  EXPECT_EQ(call(0, 10).code(), Code::aborted);
  both_set("fallback");
  EXPECT_EQ(call(0, 10).code(), Code::aborted);
  both_set("");
  EXPECT_EQ(call(0, 10).code(), Code::aborted);
}

TEST_F(Staged, ACaptureAsksNothing) {
  make();
  both_set("staged");
  for (int rank = 0; rank < 2; ++rank) {
    stream_[rank].capture = 7;
    EXPECT_TRUE(call(rank, 10).ok());
    stream_[rank].capture = 0;
  }
  EXPECT_EQ(comm().counters().captured, 1u);
  expect_right(10);
}

TEST_F(Staged, ARefusedCopyFailsTheCommunicator) {
  make(milliseconds(300));
  both_set("staged");
  expect_right(10);
  const Status status = refuse("launch_alone", 10);
  EXPECT_EQ(status.code(), Code::cuda_error);
  EXPECT_EQ(comm().status().text(), status.text());
  both_set("");
  EXPECT_EQ(call(0, 10).text(), status.text()) << "the other rank's CPU is out of step";
}

// The others' CPUs wait for what a rank without the thread never asks for: so it has failed, in every way.
TEST_F(Staged, ARankWithoutTheThreadHasFailed) {
  for (const bool barrier : {false, true}) {
    if (barrier) ::setenv("NEARLIGHT_FORCE_PATH", "staged", 1);
    make();
    CallOptions options;
    options.algorithm = Algorithm::staged;
    Status status;
    {
      const fault_points::Planted planted([](const fault_points::Point& point) {
        return &point == &fault_points::kStagedThread ? fault_points::planted_failure(point) : Status();
      });
      status = barrier ? comm().barrier(stream_[0].handle()) : call(0, 10, options);
    }
    EXPECT_EQ(status.code(), Code::system_error);
    EXPECT_EQ(comm().status().text(), status.text());
    EXPECT_EQ(call(0, 10, options).text(), status.text());
    both_set("");
    EXPECT_EQ(call(0, 10).text(), status.text());
    EXPECT_EQ(made("launch"), 0);
    both([&](int rank) { EXPECT_TRUE(comm(rank).reset().ok()); });
    expect_right(10, options);
  }
}

// Two staged calls on streams that nothing joins would write over each other's staging buffer: check mode
// puts them in order, whoever makes them.
TEST_F(Staged, CheckModeKnowsWhereTheLastCallWas) {
  pair_ = {};
  pair_.options.check = true;
  created_ = create_pair(pair_);
  for (const Created& one : created_) ASSERT_TRUE(one.ok()) << one.status().to_string();
  fake_cuda::Stream other[2]{{0, 0}, {1, 0}};
  for (const char* const path : {"staged", ""}) {
    both_set(path);
    fake_cuda::reset_calls();
    for (int rank = 0; rank < 2; ++rank) stream_[rank].busy = true;
    both([&](int rank) { EXPECT_TRUE(call(rank, 10).ok()); });
    EXPECT_EQ(made("cudaStreamWaitEvent"), 0);
    both([&](int rank) {
      EXPECT_TRUE(
          comm(rank)
              .all_reduce(send(rank), recv(rank), 10, DataType::f32, ReduceOp::sum, other[rank].handle(), {})
              .ok());
    });
    EXPECT_EQ(made("cudaStreamWaitEvent"), 2) << path;
    // From here on the last call was on a stream that is done.
  }
  both_set("staged");
  for (int rank = 0; rank < 2; ++rank) stream_[rank].busy = true;
  both([&](int rank) { EXPECT_TRUE(comm(rank).barrier(stream_[rank].handle()).ok()); });
  fake_cuda::reset_calls();
  both([&](int rank) { EXPECT_TRUE(comm(rank).barrier(other[rank].handle()).ok()); });
  EXPECT_EQ(made("cudaStreamWaitEvent"), 2);
}

// What was asked for before a reset is not served after it, by whichever thread looks when.
TEST(StagedReset, ForgetsWhatWasAskedBefore) {
  auto exchange = std::move(bootstrap::make_in_process_group(1)[0]);
  runtime::Options options;
  auto created = runtime::HostCommunicator::create_within(*exchange, options, std::chrono::seconds(10),
                                                          Deadline::after(std::chrono::seconds(10)));
  ASSERT_TRUE(created.ok()) << created.status().to_string();
  const Communicator& host = **created;
  runtime::HostTurnWords turn{};
  char staging[64] = {};
  runtime::StagedPath path(std::move(*created), &turn, staging, sizeof staging);
  algorithm::HostRequest request;
  request.collective = static_cast<std::uint32_t>(Collective::barrier);
  // Asked for, and given up, while nobody looks yet.
  algorithm::take_host_turn<exec::HostSpace>(turn, request, 1'000'000);
  EXPECT_EQ(path.status().code(), Code::timeout);
  path.stop();
  const Status rested = path.rest(Deadline::after(std::chrono::seconds(10)));
  ASSERT_TRUE(rested.ok()) << rested.to_string();
  ASSERT_TRUE(path.start().ok());
  std::this_thread::sleep_for(milliseconds(100));
  EXPECT_EQ(host.counters().of(Collective::barrier), 0u) << "the call of before";
  path.clear();
  algorithm::take_host_turn<exec::HostSpace>(turn, request, 10'000'000'000);
  EXPECT_TRUE(path.status().ok());
  EXPECT_EQ(host.counters().of(Collective::barrier), 1u);
}

TEST_F(Staged, LinesThatAreNotWholeAreNoPath) {
  make();
  const Status status = comm().set_path("ll128");
  EXPECT_EQ(status.code(), Code::unsupported);
  EXPECT_THAT(status.text(), HasSubstr("path is \"ll128\": lines of 128 bytes are left aside"));
  ::setenv("NEARLIGHT_FORCE_PATH", "ll128", 1);
  make();
  EXPECT_THAT(comm().explain_all_reduce(1000, DataType::i32, ReduceOp::sum).reason,
              HasSubstr("lines of 128 bytes are left aside"));
}

}  // namespace
}  // namespace nearlight::test
