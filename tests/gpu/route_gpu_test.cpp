// The table and the variables that steer routes, on GPU ranks.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <string_view>

#include "route/table_file.hpp"
#include "tests/gpu/ranks.hpp"
#include "tests/gpu/setups.hpp"
#include "tests/support/gpu_support.hpp"
#include "tests/support/table_file.hpp"

namespace nearlight::test {
namespace {

constexpr std::size_t kBufferBytes = std::size_t{1} << 20;
constexpr const char *kForce = "NEARLIGHT_FORCE_PATH", *kTable = "NEARLIGHT_ROUTE_TABLE";

bool says(const route::Route& route, std::string_view word) {
  return std::string_view(route.reason).find(word) != std::string_view::npos;
}

std::string gpu_name() {
  cudaDeviceProp properties{};
  EXPECT_CUDA(cudaGetDeviceProperties(&properties, 0));
  return properties.name;
}

// Some messages of the default route, checked.
void expect_right(Group& group) {
  group.run([&](Rank& rank) {
    for (const std::size_t count : {1u, 1000u, 100'000u}) {
      const Work work =
          rank.work({DataType::f32, ReduceOp::sum, Values::general, 3}, count, false, 0, 0, count);
      const Status status = rank.prepare_reduce_check(work);
      ASSERT_TRUE(status.ok()) << status.to_string();
    }
  });
  group.expect_clean(3);
}

class RouteGpu : public testing::TestWithParam<Setup> {};

TEST_P(RouteGpu, TheTableFollowsTheGpusName) {
  Group group(GetParam(), test_options(), kBufferBytes);
  ASSERT_TRUE(group.ok());
  const auto route = group[0].comm->explain_all_reduce(1024, DataType::f32, ReduceOp::sum);
  EXPECT_EQ(says(route, "H200"), gpu_name() != route::kMeasuredGpu) << route.reason;
}

TEST_P(RouteGpu, AForcedProtocolCarriesAllThatItCan) {
  for (const route::Protocol protocol : algorithm::kProtocols) {
    ::setenv(kForce, algorithm::name_of(protocol), 1);
    Group group(GetParam(), test_options(), kBufferBytes);
    ::unsetenv(kForce);
    ASSERT_TRUE(group.ok());
    if (!group.takes(protocol)) continue;
    const auto route = group[0].comm->explain_all_reduce(100'000, DataType::f32, ReduceOp::sum);
    EXPECT_EQ(route.protocol, protocol);
    EXPECT_TRUE(says(route, kForce)) << route.reason;
    expect_right(group);
  }
}

TEST_P(RouteGpu, ATableOfThisGpuIsTaken) {
  const route::Target target{true, gpu_name(), GetParam().ranks};
  route::Table table = route::shipped_table(target);
  table.sentinel_first_bytes = 0;
  table.sentinel_limit_bytes = 64 * 1024;
  table.simple_threads = 256;
  table.few_ctas = 8;
  const TableInForce in_force(route::table_text(table, target, "a test"));
  Group group(GetParam(), test_options(), kBufferBytes);
  ASSERT_TRUE(group.ok());
  const auto route = group[0].comm->explain_all_reduce(1, DataType::f32, ReduceOp::sum);
  EXPECT_EQ(route.protocol, route::Protocol::sentinel);
  EXPECT_TRUE(says(route, kTable)) << route.reason;
  EXPECT_LE(group[0].comm->explain_all_reduce(1 << 18, DataType::f32, ReduceOp::sum).grid, 8u);
  expect_right(group);
}

TEST_P(RouteGpu, ATableOfAnotherGpuIsRefused) {
  const route::Target target{true, "Another GPU", GetParam().ranks};
  const TableInForce in_force(route::table_text(route::kH200Table, target, "a test"));
  for (const auto& comm : create_communicators(GetParam(), test_options())) {
    ASSERT_FALSE(comm.ok());
    EXPECT_EQ(comm.status().code(), Code::invalid_argument);
    for (const std::string& word : {std::string(kTable), std::string("gpu: "), gpu_name()}) {
      EXPECT_NE(comm.status().text().find(word), std::string::npos) << comm.status().text();
    }
  }
}

INSTANTIATE_TEST_SUITE_P(OneGpu, RouteGpu, testing::ValuesIn(setups(1, {2})), setup_name);
INSTANTIATE_TEST_SUITE_P(TwoGpus, RouteGpu, testing::ValuesIn(setups(2, {2})), setup_name);

}  // namespace
}  // namespace nearlight::test
