// What a communicator on GPUs says it would run is what a call with these options runs.
#include <gtest/gtest.h>

#include "runtime/kernel_loop.hpp"
#include "tests/gpu/ranks.hpp"
#include "tests/gpu/setups.hpp"
#include "tests/support/gpu_support.hpp"

namespace nearlight::test {
namespace {

using route::Protocol;
using runtime::CallOptions;

class ExplainGpu : public testing::TestWithParam<Setup> {};

TEST_P(ExplainGpu, TellsWhatIsForced) {
  Group group(GetParam(), test_options(), std::size_t{1} << 16);
  ASSERT_TRUE(group.ok());
  const runtime::Communicator& comm = *group[0].comm;
  for (const Protocol protocol : group.protocols()) {
    CallOptions options;
    options.protocol = protocol;
    options.algorithm = route::Algorithm::one_shot;
    const auto chosen = comm.explain_all_reduce(1024, DataType::f32, ReduceOp::sum, options);
    ASSERT_TRUE(chosen.ok()) << chosen.status().to_string();
    EXPECT_EQ(chosen->protocol, protocol);
    EXPECT_GE(chosen->grid, 1u);
    options.grid = 1;
    options.threads = 64;
    const auto shaped = comm.explain_all_reduce(1 << 20, DataType::f32, ReduceOp::sum, options);
    ASSERT_TRUE(shaped.ok()) << shaped.status().to_string();
    EXPECT_EQ(shaped->grid, 1u);
    EXPECT_EQ(shaped->threads, 64u);
  }
}

TEST_P(ExplainGpu, RefusesWhatTheCallRefuses) {
  Group group(GetParam(), test_options(), std::size_t{1} << 16);
  ASSERT_TRUE(group.ok());
  CallOptions grid, threads, copies;
  grid.grid = 4096;
  threads.threads = 33;
  copies.algorithm = route::Algorithm::copy;
  group.run([&](Rank& rank) {
    for (const CallOptions& options : {grid, threads, copies}) {
      const Status told = rank.comm->explain_all_reduce(256, DataType::f32, ReduceOp::sum, options).status();
      EXPECT_EQ(told.code(), Code::invalid_argument);
      EXPECT_EQ(
          rank.comm->all_reduce(rank.send, rank.recv, 256, DataType::f32, ReduceOp::sum, rank.stream, options)
              .text(),
          told.text());
    }
  });
}

// No kernel with a loop has the sentinel, which single calls of this size take.
TEST_P(ExplainGpu, ALoopTakesAnotherProtocolThanACall) {
  Group group(GetParam(), test_options(), std::size_t{1} << 16);
  ASSERT_TRUE(group.ok());
  const runtime::Communicator& comm = *group[0].comm;
  const std::size_t count = route::kH200Table.sentinel_first_bytes / sizeof(float);
  ASSERT_EQ(comm.explain_all_reduce(count, DataType::f32, ReduceOp::sum).protocol, Protocol::sentinel);
  const auto loop = runtime::explain_all_reduce_loop(comm, count, DataType::f32, ReduceOp::sum);
  ASSERT_TRUE(loop.ok()) << loop.status().to_string();
  EXPECT_EQ(loop->protocol, Protocol::ll);
  CallOptions options;
  options.protocol = Protocol::sentinel;
  EXPECT_EQ(
      runtime::explain_all_reduce_loop(comm, count, DataType::f32, ReduceOp::sum, options).status().code(),
      Code::unsupported);
}

INSTANTIATE_TEST_SUITE_P(OneGpu, ExplainGpu, testing::ValuesIn(some_on_one_gpu()), setup_name);
INSTANTIATE_TEST_SUITE_P(TwoGpus, ExplainGpu, testing::ValuesIn(some_on_two_gpus()), setup_name);

}  // namespace
}  // namespace nearlight::test
