// Slots on the fastest lines, measured at creation.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <vector>

#include "tests/gpu/ranks.hpp"
#include "tests/gpu/setups.hpp"
#include "tests/support/gpu_support.hpp"

namespace nearlight::test {
namespace {

using testing::HasSubstr;

constexpr std::size_t kBufferBytes = std::size_t{1} << 18;

runtime::Options measuring() {
  runtime::Options options = test_options();
  options.calibrate = true;
  return options;
}

// All protocols and grids whose slots are moved, and some that are not; eager, each size many times.
void expect_right(Group& group) {
  const std::vector<std::size_t> counts = {1, 32, 64, 65, 256, 1000, 1024, 4096, 8192, 30'000, 60'000};
  constexpr int kTimes = 40;
  group.run([&](Rank& rank) {
    std::uint64_t call = 0;
    for (int i = 0; i < kTimes; ++i) {
      for (const std::size_t count : counts) {
        for (const DataType type : {DataType::f32, DataType::i32}) {
          const Work work = rank.work({type, ReduceOp::sum, Values::general, 3}, count, false, 0, 0,
                                      static_cast<std::uint32_t>(count));
          const Status status = rank.prepare_reduce_check(work);
          ASSERT_TRUE(status.ok()) << status.to_string();
          group.keep_pace(call++);
        }
      }
    }
  });
  group.expect_clean(kTimes * counts.size() * 2);
}

class PlacementGpu : public testing::TestWithParam<Setup> {};

TEST_P(PlacementGpu, IsMeasuredOnGpusOfTheirOwn) {
  const auto begin = std::chrono::steady_clock::now();
  Group group(GetParam(), measuring(), kBufferBytes);
  ASSERT_TRUE(group.ok());
  const auto took = std::chrono::steady_clock::now() - begin;
  const std::string words = group[0].comm->placement();
  for (Rank& rank : group.ranks()) EXPECT_EQ(rank.comm->placement(), words);
  if (GetParam().ranks > GetParam().gpus) {
    EXPECT_EQ(words, "not measured: ranks share a GPU");
  } else {
    EXPECT_THAT(words, HasSubstr("ll, 1 CTA: region "));
    EXPECT_THAT(words, HasSubstr("sentinel, 8 CTAs: region "));
    // For people, and to be seen in a log.
    RecordProperty("placement", words);
    std::printf("%s; the group took %lld ms\n", words.c_str(),
                static_cast<long long>(std::chrono::duration_cast<std::chrono::milliseconds>(took).count()));
  }
  expect_right(group);
}

TEST_P(PlacementGpu, FewRegionsAreEnough) {
  for (const std::uint32_t regions : {1u, 3u, 8u}) {
    runtime::Options options = measuring();
    options.regions = regions;
    Group group(GetParam(), options, kBufferBytes);
    ASSERT_TRUE(group.ok()) << regions;
    for (const std::size_t count : {1u, 1024u, 4096u, 8192u}) {
      const auto route = group[0].comm->explain_all_reduce(count, DataType::f32, ReduceOp::sum, {});
      ASSERT_TRUE(route.ok());
      EXPECT_LE(route->first_region + route->grid, regions);
    }
    expect_right(group);
  }
}

// The record names the region that was waited in, not the CTA.
TEST_P(PlacementGpu, AFaultNamesTheRegion) {
  runtime::Options options = measuring();
  options.timeout = std::chrono::milliseconds(200);
  Group group(GetParam(), options, kBufferBytes);
  ASSERT_TRUE(group.ok());
  const auto route = group[0].comm->explain_all_reduce(16, DataType::f32, ReduceOp::sum, {});
  ASSERT_TRUE(route.ok());
  ASSERT_EQ(route->grid, 1u);
  Rank& rank = group[0];
  ASSERT_CUDA(cudaSetDevice(rank.device));
  ASSERT_TRUE(
      rank.comm->all_reduce(rank.send, rank.recv, 16, DataType::f32, ReduceOp::sum, rank.stream).ok());
  ASSERT_CUDA(cudaStreamSynchronize(rank.stream));
  ASSERT_TRUE(rank.comm->fault().has_value());
  EXPECT_EQ(rank.comm->fault()->region, route->first_region);
}

INSTANTIATE_TEST_SUITE_P(OneGpu, PlacementGpu, testing::ValuesIn(some_on_one_gpu()), setup_name);
INSTANTIATE_TEST_SUITE_P(TwoGpus, PlacementGpu, testing::ValuesIn(some_on_two_gpus()), setup_name);

}  // namespace
}  // namespace nearlight::test
