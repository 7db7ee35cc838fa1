// What graphs keep of a GPU communicator that is gone: not freed where freeing could wait for other ranks,
// taken by the next communicator of the same sizes, else freed when one of that GPU is destroyed. On the
// stand-in for CUDA.
#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "api/handles.hpp"
#include "runtime/cuda_control.hpp"
#include "tests/api/api_support.hpp"
#include "tests/api/fake_cuda.hpp"
#include "tests/api/fake_group.hpp"

namespace nearlight::test {
namespace {

using runtime::CudaControl;

// With graphs that hold what each rank has captured.
class Retired : public testing::Test {
 protected:
  ~Retired() override {
    fake_cuda::keep_graphs(false);
    fake_cuda::fail_call(-1);
    for (int device = 0; device < fake_cuda::kDevices; ++device) {
      EXPECT_EQ(cudaSetDevice(device), cudaSuccess);
      CudaControl::free_retired(device);
    }
    EXPECT_EQ(cudaSetDevice(0), cudaSuccess);
    EXPECT_EQ(fake_cuda::live(), 0) << "something was neither used again nor freed";
  }

  static std::vector<nearlightComm_t> make(std::uint32_t regions = 1) {
    FakePair pair;
    pair.options.regions = regions;
    pair.options.slots = 512;
    std::vector<nearlightComm_t> comms;
    for (Created& one : create_pair(pair)) {
      EXPECT_TRUE(one.ok()) << one.status().to_string();
      if (one.ok()) comms.push_back(*api::add_handle(std::move(*one)));
    }
    return comms;
  }
  static void capture(const std::vector<nearlightComm_t>& comms) {
    static unsigned long long id = 1000;
    for (std::size_t rank = 0; rank < comms.size(); ++rank) {
      const FakeMemory data(static_cast<int>(rank), 4096);
      fake_cuda::Stream stream{static_cast<int>(rank), ++id};
      ASSERT_EQ(cudaSetDevice(static_cast<int>(rank)), cudaSuccess);
      EXPECT_EQ(nearlightAllReduce(data.get(), data.get(), 100, nearlightFloat32, nearlightSum, comms[rank],
                                   stream.handle()),
                nearlightSuccess)
          << nearlightGetLastError();
    }
    ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
  }
  static void destroy(const std::vector<nearlightComm_t>& comms) {
    for (const nearlightComm_t comm : comms) EXPECT_EQ(nearlightCommDestroy(comm), nearlightSuccess);
  }
  // What two communicators leave behind: what their graphs held, which are gone.
  static void leave_behind(std::uint32_t regions = 1) {
    fake_cuda::keep_graphs(true);
    const auto comms = make(regions);
    capture(comms);
    destroy(comms);
    fake_cuda::reset_calls();
    fake_cuda::keep_graphs(false);
    EXPECT_TRUE(fake_cuda::calls().empty()) << "CUDA was called where a graph is destroyed";
  }
  static int frees() {
    auto calls = fake_cuda::calls();
    return calls["cudaFree"] + calls["cudaFreeHost"];
  }
};

TEST_F(Retired, TheNextOfTheSameSizesTakesItAndFreesNothing) {
  // How much a pair has that shares nothing with anybody.
  const auto alone = make();
  const int one_pair = fake_cuda::live();
  destroy(alone);
  ASSERT_EQ(fake_cuda::live(), 0);
  for (int i = 0; i < 3; ++i) {
    leave_behind();
    EXPECT_GT(fake_cuda::live(), 0);
    fake_cuda::reset_calls();
    const auto comms = make();
    EXPECT_EQ(frees(), 0);
    EXPECT_EQ(fake_cuda::live(), one_pair) << "it was not used again";
    capture(comms);  // whose graph goes at once: the communicator still holds its own
    EXPECT_EQ(fake_cuda::live(), one_pair);
    for (const nearlightComm_t comm : comms) {
      nearlightCommStatus_t status = NEARLIGHT_COMM_STATUS_INITIALIZER;
      EXPECT_EQ(nearlightCommGetStatus(comm, &status), nearlightSuccess);
      EXPECT_EQ(status.result, nearlightSuccess) << "it kept the abort of the one before";
    }
    destroy(comms);
    EXPECT_EQ(fake_cuda::live(), 0);
  }
}

TEST_F(Retired, OfOtherSizesItWaitsForADestruction) {
  leave_behind(1);
  const int left = fake_cuda::live();
  fake_cuda::reset_calls();
  const auto comms = make(2);
  EXPECT_EQ(frees(), 0);
  EXPECT_GT(fake_cuda::live(), left);
  // Of each device its own.
  EXPECT_EQ(nearlightCommDestroy(comms[1]), nearlightSuccess);
  EXPECT_GT(fake_cuda::live(), left / 2);
  EXPECT_EQ(nearlightCommDestroy(comms[0]), nearlightSuccess);
  EXPECT_EQ(fake_cuda::live(), 0);
}

// Whatever the ones before have left in it.
TEST_F(Retired, ItIsAtRestWhenItIsTaken) {
  const CudaControl::Parts parts{
      .regions = 3, .pipe_ends = 4, .traced = true, .staging = true, .buffer_bytes = 64};
  auto made = CudaControl::create(0, parts, 7);
  ASSERT_TRUE(made.ok()) << made.status().to_string();
  std::shared_ptr<CudaControl> control = *made;
  made = Status(Code::internal_error, "let go");
  const CudaControl* const which = control.get();
  const auto fill = [](void* memory, std::size_t bytes) { std::memset(memory, 0x5a, bytes); };
  fill(control->states(), parts.regions * sizeof *control->states());
  fill(control->claim(), 128);
  fill(control->record(), sizeof *control->record());
  fill(control->trace(), sizeof *control->trace());
  fill(control->pipe_ends(), parts.pipe_ends * sizeof *control->pipe_ends());
  fill(control->host_turn(), sizeof *control->host_turn());
  fill(control->buffer(), parts.buffer_bytes);
  *control->abort_word() = *control->valid_word() = 1;
  fake_cuda::reset_calls();
  control.reset();
  EXPECT_EQ(frees(), 0);

  const auto other_device = CudaControl::create(1, parts, 7);
  ASSERT_TRUE(other_device.ok());
  EXPECT_NE(other_device->get(), which);
  CudaControl::Parts less = parts;
  less.traced = false;
  const auto other_parts = CudaControl::create(0, less, 7);
  ASSERT_TRUE(other_parts.ok());
  EXPECT_NE(other_parts->get(), which);

  made = CudaControl::create(0, parts, 9);
  ASSERT_TRUE(made.ok());
  control = *made;
  ASSERT_EQ(control.get(), which);
  for (std::uint32_t region = 0; region < parts.regions; ++region) {
    EXPECT_EQ(control->states()[region].epoch, 9u);
    EXPECT_EQ(control->states()[region].failed, 0u);
  }
  EXPECT_EQ(*control->claim(), 0u);
  EXPECT_EQ(*control->abort_word(), 0u);
  EXPECT_FALSE(control->has_fault());
  const auto is_zero = [](const void* memory, std::size_t bytes) {
    const auto* const at = static_cast<const unsigned char*>(memory);
    return std::all_of(at, at + bytes, [](unsigned char one) { return one == 0; });
  };
  EXPECT_TRUE(is_zero(control->trace(), sizeof *control->trace()));
  EXPECT_TRUE(is_zero(control->pipe_ends(), parts.pipe_ends * sizeof *control->pipe_ends()));
  EXPECT_TRUE(is_zero(control->buffer(), parts.buffer_bytes));
  const algorithm::cuda::HostTurnWords fresh{};
  EXPECT_EQ(std::memcmp(control->host_turn(), &fresh, sizeof fresh), 0);
}

// What could not be made as a whole is nothing to take.
TEST_F(Retired, WhatIsNotWholeIsNotTaken) {
  const CudaControl::Parts parts{
      .regions = 1, .pipe_ends = 1, .traced = true, .staging = true, .buffer_bytes = 64};
  int failures = 0;
  for (int n = 0; n < 50; ++n) {
    CudaControl::free_retired(0);
    EXPECT_EQ(fake_cuda::live(), 0);
    fake_cuda::fail_call(n);
    const bool made = CudaControl::create(0, parts, 0).ok();
    const std::string failed = fake_cuda::failed_call();
    fake_cuda::fail_call(-1);
    if (failed.empty()) break;
    ++failures;
    EXPECT_FALSE(made) << failed;
    const auto next = CudaControl::create(0, parts, 3);
    ASSERT_TRUE(next.ok()) << "after " << failed;
    EXPECT_NE((*next)->buffer(), nullptr) << "after " << failed;
    EXPECT_NE((*next)->staging(), nullptr);
    EXPECT_EQ((*next)->states()->epoch, 3u);
  }
  EXPECT_GE(failures, 15);
}

// Each call of CUDA's that fails while it is put to rest: an error, and it is not lost.
TEST_F(Retired, ARefusalWhileItIsTakenLosesNothing) {
  const CudaControl::Parts parts{.regions = 1, .pipe_ends = 1, .traced = true, .buffer_bytes = 64};
  ASSERT_TRUE(CudaControl::create(0, parts, 0).ok());
  const int one = fake_cuda::live();
  int failures = 0;
  for (int n = 0; n < 50; ++n) {
    fake_cuda::fail_call(n);
    const auto again = CudaControl::create(0, parts, 0);
    const bool failed = !fake_cuda::failed_call().empty();
    fake_cuda::fail_call(-1);
    EXPECT_EQ(again.ok(), !failed);
    EXPECT_EQ(fake_cuda::live(), one);
    if (!failed) break;
    ++failures;
  }
  EXPECT_GE(failures, 7);
}

}  // namespace
}  // namespace nearlight::test
