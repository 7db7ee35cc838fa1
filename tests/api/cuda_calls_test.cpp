// What GPU ranks ask of CUDA, and what they do when CUDA refuses: on a stand-in for CUDA, so without a GPU.
#include <array>
#include <bit>
#include <cstdlib>
#include <memory>
#include <optional>

#include "api/arguments.hpp"
#include "api/handles.hpp"
#include "base/fault_point.hpp"
#include "tests/api/allocations.hpp"
#include "tests/api/api_support.hpp"
#include "tests/api/fake_cuda.hpp"
#include "tests/api/fake_group.hpp"

namespace nearlight::test {
namespace {

using Made = std::map<std::string, int>;
constexpr std::size_t kCount = 100;

std::vector<Created> create_pair(bool check, const fault_points::Hook& on_rank_1 = {}) {
  FakePair pair;
  pair.options.check = check;
  pair.options.regions = 1;
  pair.options.slots = 512;
  pair.on_rank_1 = on_rank_1;
  return test::create_pair(pair);
}

class CudaCalls : public testing::Test {
 protected:
  void make(bool check) {
    auto created = create_pair(check);
    for (std::size_t rank = 0; rank < 2; ++rank) {
      ASSERT_TRUE(created[rank].ok()) << created[rank].status().to_string();
      auto handle = api::add_handle(std::move(*created[rank]));
      ASSERT_TRUE(handle.ok());
      comms_[rank] = *handle;
    }
    fake_cuda::reset_calls();
  }
  ~CudaCalls() override {
    fake_cuda::fail_call(-1);
    for (const nearlightComm_t comm : comms_) EXPECT_EQ(nearlightCommDestroy(comm), nearlightSuccess);
  }
  nearlightResult_t call(const void* send, void* recv, cudaStream_t stream) const {
    return nearlightAllReduce(send, recv, kCount, nearlightFloat32, nearlightSum, comms_[0], stream);
  }

  nearlightComm_t comms_[2] = {};
  const FakeMemory send_{0, kCount * sizeof(float)}, recv_{0, kCount * sizeof(float)},
      foreign_{1, kCount * sizeof(float)};
  fake_cuda::Stream stream_{0, 0}, foreign_stream_{1, 0};
};

const Made kLaunchOnly = {{"cudaGetDevice", 1}, {"cudaStreamGetCaptureInfo", 1}, {"launch", 1}};

TEST_F(CudaCalls, AfterTheFirstOnlyTheLaunchAndTwoQuestions) {
  make(false);
  ASSERT_EQ(call(send_.get(), recv_.get(), stream_.handle()), nearlightSuccess) << nearlightGetLastError();
  Made first = kLaunchOnly;
  first["cudaPointerGetAttributes"] = 2;
  first["cudaStreamGetDevice"] = 1;
  first["cudaStreamIsCapturing"] = 1;
  first["cudaThreadExchangeStreamCaptureMode"] = 2;
  EXPECT_EQ(fake_cuda::calls(), first);
  for (int i = 0; i < 3; ++i) {
    fake_cuda::reset_calls();
    const std::uint64_t before = allocations_of_this_thread();
    ASSERT_EQ(call(send_.get(), recv_.get(), stream_.handle()), nearlightSuccess);
    EXPECT_EQ(allocations_of_this_thread(), before);
    EXPECT_EQ(fake_cuda::calls(), kLaunchOnly);
  }
  // Another buffer is looked at, once.
  fake_cuda::reset_calls();
  ASSERT_EQ(call(recv_.get(), recv_.get(), nullptr), nearlightSuccess);
  EXPECT_EQ(fake_cuda::calls(), kLaunchOnly);  // seen as recv before, and the default stream is nobody else's
}

TEST_F(CudaCalls, APreMultipliedSumTakesItsFactorAlong) {
  make(false);
  const float factor = 2.5f;
  nearlightRedOp_t op = nearlightSum;
  ASSERT_EQ(
      nearlightRedOpCreatePreMulSum(&op, &factor, nearlightFloat32, nearlightScalarHostImmediate, comms_[0]),
      nearlightSuccess)
      << nearlightGetLastError();
  EXPECT_TRUE(fake_cuda::calls().empty());
  const auto reduce = [&](nearlightDataType_t type, std::size_t count) {
    return nearlightAllReduce(send_.get(), recv_.get(), count, type, op, comms_[0], stream_.handle());
  };
  ASSERT_EQ(reduce(nearlightFloat32, kCount), nearlightSuccess) << nearlightGetLastError();
  EXPECT_EQ(fake_cuda::launched().op, ReduceOp::premul_sum);
  EXPECT_EQ(fake_cuda::launched().factor, std::bit_cast<std::uint32_t>(factor));
  fake_cuda::reset_calls();
  const std::uint64_t before = allocations_of_this_thread();
  ASSERT_EQ(reduce(nearlightFloat32, kCount), nearlightSuccess);
  EXPECT_EQ(allocations_of_this_thread(), before);
  EXPECT_EQ(fake_cuda::calls(), kLaunchOnly);
  expect_error(reduce(nearlightFloat64, kCount / 2), nearlightInvalidArgument, {"op: ", "made for float"});
  ASSERT_EQ(nearlightRedOpDestroy(op, comms_[0]), nearlightSuccess);
  expect_error(reduce(nearlightFloat32, kCount), nearlightInvalidArgument, {"op: ", "destroyed"});
  EXPECT_EQ(fake_cuda::calls(), kLaunchOnly);
}

// The collectives by parts: one launch each, and nothing is asked of a buffer that the rank has no use for.
TEST_F(CudaCalls, ACollectiveByPartsIsOneLaunch) {
  make(false);
  constexpr std::size_t kPart = kCount / 2;
  const auto expect_one_launch = [](nearlightResult_t result, int pointers) {
    EXPECT_EQ(result, nearlightSuccess) << nearlightGetLastError();
    auto calls = fake_cuda::calls();
    EXPECT_EQ(calls["launch_parts"], 1);
    EXPECT_EQ(calls["launch"], 0);
    EXPECT_EQ(calls["cudaPointerGetAttributes"], pointers);
    fake_cuda::reset_calls();
  };
  const nearlightComm_t comm = comms_[0];
  const cudaStream_t stream = stream_.handle();
  const auto type = nearlightFloat32;
  expect_one_launch(nearlightBroadcast(send_.get(), recv_.get(), kCount, type, 0, comm, stream), 2);
  expect_one_launch(nearlightBroadcast(foreign_.get(), recv_.get(), kCount, type, 1, comm, stream), 0);
  expect_one_launch(nearlightReduce(send_.get(), foreign_.get(), kCount, type, nearlightSum, 1, comm, stream),
                    0);
  expect_one_launch(nearlightAllGather(send_.get(), recv_.get(), kPart, type, comm, stream), 0);
  expect_one_launch(nearlightReduceScatter(send_.get(), recv_.get(), kPart, type, nearlightSum, comm, stream),
                    0);
  expect_one_launch(nearlightAllToAll(send_.get(), recv_.get(), kPart, type, comm, stream), 0);
  expect_error(nearlightAllGather(foreign_.get(), recv_.get(), kPart, type, comm, stream),
               nearlightInvalidArgument, {"send", "device 1"});
  EXPECT_EQ(fake_cuda::calls()["launch_parts"], 0);
}

TEST_F(CudaCalls, CheckModeLooksEachTimeAndAtTheEnds) {
  make(true);
  for (int i = 0; i < 3; ++i) {
    fake_cuda::reset_calls();
    ASSERT_EQ(call(send_.get(), recv_.get(), stream_.handle()), nearlightSuccess) << nearlightGetLastError();
    EXPECT_EQ(fake_cuda::calls()["cudaPointerGetAttributes"], 4);
    EXPECT_EQ(fake_cuda::calls()["cudaStreamGetDevice"], 1);
    EXPECT_EQ(fake_cuda::calls()["launch"], 1);
  }
  expect_error(nearlightAllReduce(send_.get(), recv_.get(), kCount + 1, nearlightFloat32, nearlightSum,
                                  comms_[0], nullptr),
               nearlightInvalidArgument, {"the end of send"});
}

TEST_F(CudaCalls, WhatIsNotTheRanksIsNamedAndNotLaunched) {
  for (const bool check : {false, true}) {
    make(check);
    std::array<float, kCount> plain{};
    const struct {
      const void* send;
      void* recv;
      cudaStream_t stream;
      std::vector<std::string> words;
    } all_bad[] = {
        {foreign_.get(), recv_.get(), stream_.handle(), {"send (", "device 1", "rank is on device 0"}},
        {send_.get(), foreign_.get(), stream_.handle(), {"recv (", "device 1", "rank is on device 0"}},
        {send_.get(), recv_.get(), foreign_stream_.handle(), {"stream (", "device 1", "rank is on device 0"}},
        {plain.data(), recv_.get(), stream_.handle(), {"send (", "no memory that device 0 can reach"}},
        {send_.get(), plain.data(), stream_.handle(), {"recv (", "no memory that device 0 can reach"}},
    };
    for (int round = 0; round < 2; ++round) {
      for (const auto& bad : all_bad) {
        expect_error(call(bad.send, bad.recv, bad.stream), nearlightInvalidArgument, bad.words);
      }
      ASSERT_EQ(fake_cuda::calls()["launch"], round);
      ASSERT_EQ(call(send_.get(), recv_.get(), stream_.handle()), nearlightSuccess);
    }
    for (nearlightComm_t& comm : comms_) {
      EXPECT_EQ(nearlightCommDestroy(comm), nearlightSuccess);
      comm = nullptr;
    }
  }
}

// The peers have begun an operation that this rank never will: whatever it called next would be taken for
// that one.
TEST_F(CudaCalls, ARefusedLaunchFailsTheCommunicator) {
  make(true);
  ASSERT_EQ(call(send_.get(), recv_.get(), stream_.handle()), nearlightSuccess);
  int before_launch = 0;  // calls of CUDA in front of the launch
  for (;; ++before_launch) {
    fake_cuda::fail_call(before_launch);
    const nearlightResult_t result = call(send_.get(), recv_.get(), stream_.handle());
    const std::string failed = fake_cuda::failed_call();
    fake_cuda::fail_call(-1);
    ASSERT_FALSE(failed.empty());
    if (failed != "launch") continue;
    expect_error(result, nearlightCudaError, {"launch", "planted error"});
    break;
  }
  fake_cuda::reset_calls();
  expect_error(call(send_.get(), recv_.get(), stream_.handle()), nearlightCudaError, {"planted error"});
  EXPECT_EQ(fake_cuda::calls()["launch"], 0);
}

// GPU ranks of one process: whoever comes second finds the difference, and both are told.
TEST_F(CudaCalls, CallsThatDifferAreToldToBothRanks) {
  make(true);
  const FakeMemory mine(1, kCount * sizeof(float));
  const auto second = [&](std::size_t count, nearlightRedOp_t op) {
    return nearlightAllReduce(foreign_.get(), mine.get(), count, nearlightFloat32, op, comms_[1],
                              foreign_stream_.handle());
  };
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(call(send_.get(), recv_.get(), stream_.handle()), nearlightSuccess) << nearlightGetLastError();
    ASSERT_EQ(second(kCount, nearlightSum), nearlightSuccess) << nearlightGetLastError();
  }
  ASSERT_EQ(call(send_.get(), recv_.get(), stream_.handle()), nearlightSuccess);
  fake_cuda::reset_calls();
  expect_error(second(kCount, nearlightMax), nearlightInvalidUsage,
               {"call 3", "op is sum on rank 0, max on rank 1"});
  EXPECT_EQ(fake_cuda::calls()["launch"], 0);
  // The first one's kernel waits: it is ended.
  expect_error(call(send_.get(), recv_.get(), stream_.handle()), nearlightInvalidUsage,
               {"op is sum on rank 0"});
  // After a reset they begin anew.
  std::thread other([this] { EXPECT_EQ(nearlightCommReset(comms_[1], 0), nearlightSuccess); });
  EXPECT_EQ(nearlightCommReset(comms_[0], 0), nearlightSuccess) << nearlightGetLastError();
  other.join();
  EXPECT_EQ(call(send_.get(), recv_.get(), stream_.handle()), nearlightSuccess) << nearlightGetLastError();
  EXPECT_EQ(nearlightBarrier(comms_[0], stream_.handle()), nearlightSuccess);
  EXPECT_EQ(second(kCount, nearlightSum), nearlightSuccess) << nearlightGetLastError();
  expect_error(second(kCount, nearlightSum), nearlightInvalidUsage,
               {"call 1", "barrier on rank 0", "all_reduce on rank 1"});
}

TEST_F(CudaCalls, PathsThatDifferAreTold) {
  make(true);
  EXPECT_EQ(nearlightCommSetPath(comms_[0], "simple"), nearlightSuccess);
  ASSERT_EQ(call(send_.get(), recv_.get(), stream_.handle()), nearlightSuccess);
  expect_error(nearlightAllReduce(foreign_.get(), foreign_.get(), kCount, nearlightFloat32, nearlightSum,
                                  comms_[1], foreign_stream_.handle()),
               nearlightInvalidUsage, {"the forced path is simple on rank 0, not set on rank 1"});
}

// Calls of one rank on two streams: while the first still runs the second is put behind it, and that is told.
TEST_F(CudaCalls, AnotherStreamIsPutBehindTheFirstAndTold) {
  for (const bool busy : {false, true}) {
    make(true);
    stream_.busy = busy;
    fake_cuda::Stream other{0, 0};
    ASSERT_EQ(call(send_.get(), recv_.get(), stream_.handle()), nearlightSuccess);
    fake_cuda::reset_calls();
    ASSERT_EQ(call(send_.get(), recv_.get(), stream_.handle()), nearlightSuccess);
    EXPECT_EQ(fake_cuda::calls()["cudaStreamWaitEvent"], 0);  // the stream has the order
    testing::internal::CaptureStderr();
    ASSERT_EQ(call(send_.get(), recv_.get(), other.handle()), nearlightSuccess) << nearlightGetLastError();
    ASSERT_EQ(call(send_.get(), recv_.get(), stream_.handle()), nearlightSuccess) << nearlightGetLastError();
    const std::string told = testing::internal::GetCapturedStderr();
    char handles[2][32];
    std::snprintf(handles[0], sizeof handles[0], "%p", static_cast<void*>(stream_.handle()));
    std::snprintf(handles[1], sizeof handles[1], "%p", static_cast<void*>(other.handle()));
    for (const char* const handle : handles) EXPECT_EQ(told.find(handle) != std::string::npos, busy) << told;
    EXPECT_EQ(fake_cuda::calls()["cudaStreamWaitEvent"], busy ? 1 : 0);
    for (nearlightComm_t& comm : comms_) {
      EXPECT_EQ(nearlightCommDestroy(comm), nearlightSuccess);
      comm = nullptr;
    }
    stream_.busy = false;
  }
}

// What a reset asks of CUDA may fail at every call: the rank and the other one know, and the next reset
// works.
TEST_F(CudaCalls, AResetThatCudaRefusesIsAnErrorAndTheNextOneWorks) {
  make(false);
  ASSERT_EQ(call(send_.get(), recv_.get(), stream_.handle()), nearlightSuccess);
  ASSERT_EQ(nearlightCommAbort(comms_[0]), nearlightSuccess);
  const auto reset_both = [this] {
    std::array<nearlightResult_t, 2> results{};
    std::thread other([&] { results[1] = nearlightCommReset(comms_[1], 60'000); });
    results[0] = nearlightCommReset(comms_[0], 60'000);
    other.join();
    return results;
  };
  int failures = 0;
  for (int n = 0; n < 200; ++n) {
    fake_cuda::fail_call(n);
    const auto results = reset_both();
    const std::string failed = fake_cuda::failed_call();
    fake_cuda::fail_call(-1);
    if (failed.empty()) break;
    if (results[0] == nearlightSuccess && results[1] == nearlightSuccess) {
      EXPECT_EQ(failed, "cudaSetDevice") << "ignored";  // putting it back has nobody to tell
      continue;
    }
    ++failures;
    // One cannot even begin, or both know.
    EXPECT_TRUE(results[0] != nearlightSuccess || failed == "cudaGetDevice" || failed == "cudaSetDevice");
    const auto again = reset_both();
    EXPECT_EQ(again[0], nearlightSuccess) << "after " << failed << ": " << nearlightGetLastError();
    EXPECT_EQ(again[1], nearlightSuccess) << "after " << failed;
    EXPECT_EQ(call(send_.get(), recv_.get(), stream_.handle()), nearlightSuccess) << nearlightGetLastError();
  }
  EXPECT_GT(failures, 10);
}

// Whichever call of CUDA's fails while the stream captures: the code, its name, nothing launched twice, and
// the next call works.
TEST_F(CudaCalls, ARefusalOfCudaIsAnErrorAndTheNextCallWorks) {
  make(true);
  fake_cuda::Stream capturing{0, 1};
  int failures = 0;
  for (int n = 0; n < 100; ++n) {
    capturing.capture = 10 + static_cast<unsigned long long>(n);  // a new capture, so that it is retained
    fake_cuda::fail_call(n);
    const nearlightResult_t result = call(send_.get(), recv_.get(), capturing.handle());
    const std::string failed = fake_cuda::failed_call();
    fake_cuda::fail_call(-1);
    if (failed.empty()) {
      EXPECT_EQ(result, nearlightSuccess);
      break;
    }
    EXPECT_EQ(fake_cuda::current_device(), 0);
    // Putting the capture mode back, and releasing what a graph took over, have nobody to tell.
    if (result == nearlightSuccess) {
      EXPECT_TRUE(failed == "cudaThreadExchangeStreamCaptureMode" || failed == "cudaUserObjectRelease")
          << failed;
      continue;
    }
    ++failures;
    expect_error(result, nearlightCudaError, {"nearlightAllReduce on rank 0", failed, "planted error"});
    fake_cuda::reset_calls();
    ASSERT_EQ(call(send_.get(), recv_.get(), stream_.handle()), nearlightSuccess) << failed;
    EXPECT_EQ(fake_cuda::calls()["launch"], 1) << failed;
  }
  EXPECT_GE(failures, 8);
}

// Whatever its compute capability (here 9.0): the GPU says what a CTA may have, and the smaller one decides.
TEST(CudaCreation, ProductsHaveTheSharedMemoryThatEachGpuGives) {
  const auto is_large = [](std::size_t first, std::size_t second) {
    fake_cuda::give_shared(0, first);
    fake_cuda::give_shared(1, second);
    for (const auto& created : create_pair(false)) EXPECT_TRUE(created.ok()) << created.status().to_string();
    fake_cuda::give_shared(0, 227 << 10);
    fake_cuda::give_shared(1, 227 << 10);
    return fake_cuda::loaded_large_products();
  };
  EXPECT_TRUE(is_large(227 << 10, 228 << 10));
  EXPECT_FALSE(is_large(227 << 10, 99 << 10));
  EXPECT_FALSE(is_large((227 << 10) - 1, 227 << 10));
  EXPECT_TRUE(is_large(227 << 10, 227 << 10));
}

// Whichever call of CUDA's fails during creation, on whichever rank: both ranks fail, one with the cause, and
// nothing is left.
TEST(CudaCreation, ARefusalOfCudaFailsBothRanksAndLeavesNothing) {
  const int before = fake_cuda::live();
  int failures = 0;
  for (int n = 0; n < 200; ++n) {
    fake_cuda::fail_call(n);
    const auto created = create_pair(false);
    const std::string failed = fake_cuda::failed_call();
    fake_cuda::fail_call(-1);
    if (failed.empty()) {
      EXPECT_TRUE(created[0].ok() && created[1].ok());
      break;
    }
    EXPECT_EQ(created[0].ok(), created[1].ok()) << failed << ": one rank has a communicator";
    if (created[0].ok()) continue;
    ++failures;
    bool told = false;
    for (const Created& one : created) {
      EXPECT_EQ(one.status().code(), Code::cuda_error) << one.status().to_string();
      told = told || one.status().text().find(failed) != std::string::npos;
    }
    EXPECT_TRUE(told) << failed << ": " << created[0].status().to_string();
    EXPECT_EQ(fake_cuda::live(), before) << failed;
  }
  EXPECT_GE(failures, 20);
  EXPECT_EQ(fake_cuda::live(), before);
}

// Two ranks with a configuration of this `early_launch`; they live as long as this.
class EarlyPair {
 public:
  explicit EarlyPair(std::int32_t wish, std::array<int, 2> devices = {0, 1}) : devices_(devices) {
    nearlightConfig_t config = NEARLIGHT_CONFIG_INITIALIZER;
    config.early_launch = wish;
    const auto options = api::to_options(&config);
    EXPECT_TRUE(options.ok()) << options.status().to_string();
    FakePair pair;
    pair.options = *options;
    pair.options.regions = 1;
    pair.options.slots = 512;
    pair.devices = devices;
    auto created = test::create_pair(pair);
    for (std::size_t rank = 0; rank < 2; ++rank) {
      EXPECT_TRUE(created[rank].ok()) << created[rank].status().to_string();
      if (!created[rank].ok()) continue;
      const auto handle = api::add_handle(std::move(*created[rank]));
      EXPECT_TRUE(handle.ok()) << handle.status().to_string();
      if (handle.ok()) comms_[rank] = *handle;
    }
  }
  EarlyPair(const EarlyPair&) = delete;
  ~EarlyPair() {
    for (const nearlightComm_t comm : comms_) EXPECT_EQ(nearlightCommDestroy(comm), nearlightSuccess);
  }

  // Both ranks say so, and so do the kernels that they launch.
  void expect(bool early) const {
    for (std::size_t rank = 0; rank < 2; ++rank) {
      SCOPED_TRACE("rank " + std::to_string(rank));
      nearlightCommInfo_t info = NEARLIGHT_COMM_INFO_INITIALIZER;
      ASSERT_EQ(nearlightCommGetInfo(comms_[rank], &info), nearlightSuccess) << nearlightGetLastError();
      EXPECT_EQ(info.early_launch, early ? 1 : 0);
      const nearlightComm_t comm = comms_[rank];
      const FakeMemory memory(devices_[rank], 2 * kCount * sizeof(float));
      fake_cuda::Stream stream{devices_[rank], 0};
      void* const at = memory.get();
      const void* const own = static_cast<const float*>(at) + rank * kCount;
      const auto expect_launch = [early](const char* what, nearlightResult_t result, const char* launch) {
        EXPECT_EQ(result, nearlightSuccess) << what << ": " << nearlightGetLastError();
        EXPECT_EQ(fake_cuda::calls()[launch], 1) << what;
        EXPECT_EQ(fake_cuda::launched().late, early ? 0u : 1u) << what;
        fake_cuda::reset_calls();
      };
      fake_cuda::reset_calls();
      const auto type = nearlightFloat32;
      expect_launch("all_reduce",
                    nearlightAllReduce(at, at, kCount, type, nearlightSum, comm, stream.handle()), "launch");
      expect_launch("all_gather", nearlightAllGather(own, at, kCount, type, comm, stream.handle()),
                    "launch_parts");
      expect_launch("barrier", nearlightBarrier(comm, stream.handle()), "launch_barrier");
    }
  }

 private:
  std::array<int, 2> devices_;
  nearlightComm_t comms_[2] = {};
};

TEST(CudaCreation, TheFirstCommunicatorOfADeviceIsEarlyUntilItGoes) {
  {
    const EarlyPair first(0);
    first.expect(true);
    const EarlyPair second(0);
    second.expect(false);
    first.expect(true);
  }
  EarlyPair(0).expect(true);
}

TEST(CudaCreation, RanksThatShareADeviceAreLate) {
  EarlyPair(0, {0, 0}).expect(false);
  EarlyPair(0).expect(true);  // they have not taken the place
}

TEST(CudaCreation, WhatIsNotTheFirstOnAllOfItsDevicesIsLateOnAll) {
  std::optional<EarlyPair> of_device_1(std::in_place, 1, std::array<int, 2>{1, 1});
  const EarlyPair second_on_one(0);
  second_on_one.expect(false);
  of_device_1.reset();
  EarlyPair(0).expect(true);  // device 0's place has been given back
}

TEST(CudaCreation, AWishForEarlyOrLateIsDone) {
  EarlyPair(-1).expect(false);
  const EarlyPair late(-1);
  const EarlyPair first(0);
  first.expect(true);  // a late one has not taken the place
  const EarlyPair wished(1);
  wished.expect(true);
  first.expect(true);
  EarlyPair(1, {0, 0}).expect(true);
}

// Each point that the creation of GPU ranks comes by before and after its memory: both ranks fail, and both
// texts name the point.
TEST(CudaCreation, EachFaultPointFailsBothRanksAndLeavesNothing) {
  ::setenv("NEARLIGHT_CALIBRATE", "1", 1);
  const int before = fake_cuda::live();
  int points = 0;
  for (const fault_points::Point* const point : fault_points::all()) {
    if (point->creation != fault_points::Creation::cuda) continue;
    ++points;
    const auto created = create_pair(false, [point](const fault_points::Point& here) {
      return &here == point ? fault_points::planted_failure(here) : Status();
    });
    for (const Created& one : created) {
      ASSERT_FALSE(one.ok()) << point->name;
      EXPECT_NE(one.status().text().find(point->name), std::string::npos) << one.status().text();
    }
    EXPECT_NE(created[0].status().text().find("rank 1"), std::string::npos) << created[0].status().text();
    EXPECT_EQ(fake_cuda::live(), before) << point->name;
    const auto again = create_pair(false);
    EXPECT_TRUE(again[0].ok() && again[1].ok()) << "after " << point->name;
  }
  ::unsetenv("NEARLIGHT_CALIBRATE");
  EXPECT_EQ(points, 6);
}

}  // namespace
}  // namespace nearlight::test
