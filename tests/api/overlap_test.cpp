// Buffers of one GPU rank that overlap, on the stand-in for CUDA.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>

#include "runtime/communicator.hpp"
#include "runtime/messages.hpp"
#include "tests/api/fake_cuda.hpp"
#include "tests/api/fake_group.hpp"

namespace nearlight::test {
namespace {

constexpr std::size_t kCount = 100;

// CUDA's copies are not for memory that overlaps; check mode refuses it of one rank, too.
TEST(CudaCallsOfOneRank, BuffersThatOverlapAreCopiedByAKernelOrRefused) {
  using runtime::CallOptions;
  for (const bool check : {false, true}) {
    FakePair one;
    one.nranks = 1;
    one.options.check = check;
    one.options.regions = 1;
    auto created = create_pair(one);
    ASSERT_TRUE(created[0].ok()) << created[0].status().to_string();
    runtime::Communicator& comm = **created[0];
    const FakeMemory memory(0, 3 * kCount * sizeof(float));
    fake_cuda::Stream stream{0, 0};
    float* const send = static_cast<float*>(memory.get());
    CallOptions options;
    options.may_overlap = true;
    const auto expect = [&](const Status& status) {
      if (!check) {
        EXPECT_TRUE(status.ok()) << status.to_string();
        EXPECT_EQ(fake_cuda::calls()["launch_alone"], 1);
        EXPECT_EQ(fake_cuda::calls()["cudaMemcpyAsync"], 0);
      } else {
        EXPECT_EQ(status.code(), Code::invalid_argument) << status.to_string();
        EXPECT_THAT(status.text(), testing::HasSubstr("overlap"));
      }
      fake_cuda::reset_calls();
    };
    fake_cuda::reset_calls();
    expect(comm.all_reduce(send, send + 1, kCount, DataType::f32, ReduceOp::sum, stream.handle(), options));
    expect(comm.collective({Collective::all_gather, send + 1, send, kCount, DataType::f32}, stream.handle(),
                           options));
    const runtime::MessageCall both[] = {{true, send, kCount, DataType::f32, 0},
                                         {false, send + 1, kCount, DataType::f32, 0}};
    expect(comm.messages(both, stream.handle(), options));
    // What lies next to each other is for CUDA.
    ASSERT_TRUE(
        comm.all_reduce(send, send + kCount, kCount, DataType::f32, ReduceOp::sum, stream.handle(), options)
            .ok());
    EXPECT_EQ(fake_cuda::calls()["cudaMemcpyAsync"], 1);
    EXPECT_EQ(fake_cuda::calls()["launch_alone"], 0);
  }
}

}  // namespace
}  // namespace nearlight::test
