// The full stop between an operation that was taken and one by NCCL, on a stand-in for CUDA.
#include "dropin/tails.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "dropin/companion.hpp"
#include "dropin/real_nccl.hpp"
#include "tests/api/fake_cuda.hpp"

namespace nearlight::test {
namespace {

int device_of_the_communicator = 0;

ncclResult_t tell_device(ncclComm*, int* device) {
  if (device_of_the_communicator < 0) return ncclInvalidArgument;
  *device = device_of_the_communicator;
  return ncclSuccess;
}

}  // namespace
}  // namespace nearlight::test

namespace nearlight::dropin {

// An NCCL whose kernels may begin early.
const RealNccl* real_nccl() {
  static const RealNccl nccl = [] {
    RealNccl one;
    one.version = 22809;
    one.ncclCommCuDevice = test::tell_device;
    return one;
  }();
  return &nccl;
}

}  // namespace nearlight::dropin

namespace nearlight::test {
namespace {

// How many full stops there are before an operation by NCCL of a communicator on this device.
int stops(fake_cuda::Stream& stream, int device) {
  device_of_the_communicator = device;
  fake_cuda::reset_calls();
  const Status status = dropin::before_nccl(nullptr, stream.handle());
  EXPECT_TRUE(status.ok()) << status.to_string();
  EXPECT_EQ(fake_cuda::current_device(), 0) << "put back";
  auto calls = fake_cuda::calls();
  if (calls["launch_full_stop"] > 0) {
    EXPECT_EQ(calls["cudaSetDevice"], device == 0 ? 0 : 2);
  }
  return calls["launch_full_stop"];
}

TEST(Tails, OneStopBehindOurs) {
  fake_cuda::Stream stream;
  EXPECT_EQ(stops(stream, 0), 0);
  dropin::tails::mark(stream.handle(), 0);
  EXPECT_EQ(stops(stream, 0), 1);
  EXPECT_EQ(stops(stream, 0), 0);
}

// A handle that a stream of another device has had.
TEST(Tails, OfTheCommunicatorsDevice) {
  fake_cuda::Stream stream;
  dropin::tails::mark(stream.handle(), 0);
  EXPECT_EQ(stops(stream, 1), 0);
  EXPECT_EQ(stops(stream, -1), 0) << "NCCL does not know the communicator, and refuses the call itself";
  dropin::tails::mark(stream.handle(), 1);
  EXPECT_EQ(stops(stream, 1), 1);
  EXPECT_EQ(stops(stream, 0), 1);
  EXPECT_EQ(stops(stream, 1), 0);
}

// What is captured runs when the graph does: the next operation outside of it is behind ours all the same.
TEST(Tails, ACaptureLeavesTheMark) {
  fake_cuda::Stream stream;
  dropin::tails::mark(stream.handle(), 0);
  stream.capture = 7;
  EXPECT_EQ(stops(stream, 0), 1);
  EXPECT_EQ(stops(stream, 0), 0) << "the graph has its own";
  stream.capture = 8;
  EXPECT_EQ(stops(stream, 0), 1);
  dropin::tails::mark(stream.handle(), 0);
  EXPECT_EQ(stops(stream, 0), 1) << "ours is captured, and comes before it";
  stream.capture = 0;
  EXPECT_EQ(stops(stream, 0), 1);
  EXPECT_EQ(stops(stream, 0), 0);
}

TEST(Tails, AStopThatFailsIsToldAndMissedLater) {
  fake_cuda::Stream stream;
  dropin::tails::mark(stream.handle(), 0);
  device_of_the_communicator = 0;
  bool failed = false;
  for (int n = 0; n < 10 && !failed; ++n) {
    fake_cuda::reset_calls();
    fake_cuda::fail_call(n);
    const Status status = dropin::before_nccl(nullptr, stream.handle());
    failed = fake_cuda::failed_call() == "launch_full_stop";
    EXPECT_EQ(status.ok(), fake_cuda::failed_call().empty());
  }
  fake_cuda::fail_call(-1);
  EXPECT_TRUE(failed);
  EXPECT_EQ(stops(stream, 0), 1);
}

// The last test: the table stays full. Then each is stopped, on its communicator's device.
TEST(TailsFull, EveryOperationIsStoppedOnItsDevice) {
  std::vector<std::unique_ptr<fake_cuda::Stream>> many;
  for (int i = 0; i < 2000; ++i) {
    many.push_back(std::make_unique<fake_cuda::Stream>());
    dropin::tails::mark(many.back()->handle(), 1);
  }
  EXPECT_EQ(stops(*many.back(), 1), 1);
  EXPECT_EQ(stops(*many.back(), 1), 1) << "it has no place to be marked in";
  EXPECT_EQ(stops(*many.back(), 0), 1);
}

}  // namespace
}  // namespace nearlight::test
