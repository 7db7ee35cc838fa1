// What a communicator has done, read at run time.
#include <atomic>
#include <cstring>
#include <map>

#include "tests/api/api_support.hpp"

namespace nearlight::test {
namespace {

nearlightCounters_t counters_of(nearlightComm_t comm) {
  nearlightCounters_t counters = NEARLIGHT_COUNTERS_INITIALIZER;
  EXPECT_EQ(nearlightCommGetCounters(comm, &counters), nearlightSuccess) << nearlightGetLastError();
  return counters;
}

nearlightResult_t sum(nearlightComm_t comm, std::vector<float>& data) {
  return nearlightAllReduce(data.data(), data.data(), data.size(), nearlightFloat32, nearlightSum, comm,
                            nullptr);
}

TEST(Counters, CountWhatWentThroughByRoute) {
  const HostGroup group(2);
  EXPECT_EQ(counters_of(group[0]).all_reduces, 0u);
  EXPECT_EQ(counters_of(group[0]).routes, 0u);
  group.run([](int, nearlightComm_t comm) {
    std::vector<float> small(2, 1.0f), large(100'000, 1.0f), none;
    for (int i = 0; i < 5; ++i) ASSERT_EQ(sum(comm, small), nearlightSuccess);
    for (int i = 0; i < 3; ++i) ASSERT_EQ(sum(comm, large), nearlightSuccess);
    ASSERT_EQ(sum(comm, none), nearlightSuccess);
    ASSERT_EQ(nearlightBarrier(comm, nullptr), nearlightSuccess);
  });
  for (int rank = 0; rank < 2; ++rank) {
    const nearlightCounters_t counters = counters_of(group[rank]);
    EXPECT_EQ(counters.all_reduces, 9u);
    EXPECT_EQ(counters.barriers, 1u);
    EXPECT_EQ(counters.bytes, 5 * 8u + 3 * 400'000u);
    EXPECT_EQ(counters.captured, 0u);
    EXPECT_EQ(counters.failures, 0u);
    ASSERT_EQ(counters.routes, 2u);
    std::map<std::string, std::pair<std::uint64_t, std::uint64_t>> routes;
    for (std::size_t i = 0; i < counters.routes; ++i) {
      const auto& route = counters.route[i];
      routes[std::string(route.algorithm) + " " + route.protocol] = {route.operations, route.bytes};
    }
    // As explain names them.
    for (const auto& [count, expected] :
         {std::pair{std::size_t{2}, std::pair<std::uint64_t, std::uint64_t>{5, 40}},
          std::pair{std::size_t{100'000}, std::pair<std::uint64_t, std::uint64_t>{3, 1'200'000}}}) {
      nearlightRoute_t route = NEARLIGHT_ROUTE_INITIALIZER;
      ASSERT_EQ(nearlightExplain(group[rank], nearlightCollectiveAllReduce, count, nearlightFloat32,
                                 nearlightSum, &route),
                nearlightSuccess);
      EXPECT_EQ(routes[std::string(route.algorithm) + " " + route.protocol], expected);
    }
  }
}

TEST(Counters, CountFailures) {
  nearlightConfig_t config = NEARLIGHT_CONFIG_INITIALIZER;
  config.timeout_ms = 20;
  const HostGroup group(2, config);
  float value = 1;
  EXPECT_EQ(nearlightAllReduce(nullptr, &value, 1, nearlightFloat32, nearlightSum, group[0], nullptr),
            nearlightInvalidArgument);
  EXPECT_EQ(counters_of(group[0]).failures, 1u);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(nearlightAllReduce(&value, &value, 1, nearlightFloat32, nearlightSum, group[0], nullptr),
              nearlightTimeout);
  }
  EXPECT_EQ(nearlightBarrier(group[0], nullptr), nearlightTimeout);
  const nearlightCounters_t counters = counters_of(group[0]);
  EXPECT_EQ(counters.failures, 4u);
  EXPECT_EQ(counters.all_reduces, 0u);
  EXPECT_EQ(counters.bytes, 0u);
  EXPECT_EQ(counters.routes, 0u);
}

TEST(Counters, GoOnAfterAResetAndBeginAnewInASmallerGroup) {
  nearlightConfig_t config = NEARLIGHT_CONFIG_INITIALIZER;
  config.timeout_ms = 150;
  const HostGroup group(3, config);
  group.run([](int, nearlightComm_t comm) {
    std::vector<float> data(2, 1.0f);
    for (int i = 0; i < 4; ++i) ASSERT_EQ(sum(comm, data), nearlightSuccess);
  });
  group.run([](int rank, nearlightComm_t comm) {
    std::vector<float> data(2, 1.0f);
    if (rank != 2) {
      EXPECT_NE(sum(comm, data), nearlightSuccess);
    }
  });
  group.run([](int rank, nearlightComm_t comm) {
    ASSERT_EQ(nearlightCommReset(comm, 0), nearlightSuccess) << nearlightGetLastError();
    std::vector<float> data(2, 1.0f);
    for (int i = 0; i < 3; ++i) ASSERT_EQ(sum(comm, data), nearlightSuccess);
    const nearlightCounters_t counters = counters_of(comm);
    EXPECT_EQ(counters.all_reduces, 7u);
    EXPECT_EQ(counters.bytes, 7 * 8u);
    EXPECT_EQ(counters.failures, rank != 2 ? 1u : 0u);
    if (rank == 2) return;
    const int members[] = {0, 1};
    nearlightComm_t smaller = nullptr;
    ASSERT_EQ(nearlightCommShrink(comm, members, 2, 0, &smaller), nearlightSuccess)
        << nearlightGetLastError();
    EXPECT_EQ(counters_of(smaller).all_reduces, 0u);
    EXPECT_EQ(sum(smaller, data), nearlightSuccess);
    EXPECT_EQ(counters_of(smaller).all_reduces, 1u);
    EXPECT_EQ(counters_of(smaller).failures, 0u);
    EXPECT_EQ(counters_of(comm).all_reduces, 7u);
    EXPECT_EQ(nearlightCommDestroy(smaller), nearlightSuccess);
  });
}

// Never less than before, while calls run; what was counted and what was moved fit each other in the end.
TEST(Counters, AreReadWhileCallsRun) {
  constexpr int kCalls = 3000;
  const HostGroup group(2);
  std::atomic<bool> done{false};
  std::thread reader([&] {
    nearlightCounters_t before = counters_of(group[0]);
    while (!done.load()) {
      const nearlightCounters_t now = counters_of(group[0]);
      EXPECT_GE(now.all_reduces, before.all_reduces);
      EXPECT_GE(now.bytes, before.bytes);
      before = now;
    }
  });
  group.run([](int, nearlightComm_t comm) {
    std::vector<float> data(4, 0.0f);
    for (int i = 0; i < kCalls; ++i) ASSERT_EQ(sum(comm, data), nearlightSuccess);
  });
  done = true;
  reader.join();
  EXPECT_EQ(counters_of(group[0]).all_reduces, std::uint64_t{kCalls});
  EXPECT_EQ(counters_of(group[0]).bytes, std::uint64_t{kCalls} * 16);
}

TEST(Counters, BadArgumentsAreNamed) {
  const HostGroup group(1);
  nearlightCounters_t counters = NEARLIGHT_COUNTERS_INITIALIZER;
  expect_error(nearlightCommGetCounters(nullptr, &counters), nearlightInvalidArgument, {"comm is NULL"});
  expect_error(nearlightCommGetCounters(group[0], nullptr), nearlightInvalidArgument, {"counters"});
  counters.size = 8;
  expect_error(nearlightCommGetCounters(group[0], &counters), nearlightInvalidArgument, {"counters"});
}

}  // namespace
}  // namespace nearlight::test
