// Reset and shrink through the C and C++ API.
#include <nearlight/nearlight.hpp>

#include "tests/api/api_support.hpp"

namespace nearlight::test {
namespace {

nearlightConfig_t hasty_config() {
  nearlightConfig_t config = NEARLIGHT_CONFIG_INITIALIZER;
  config.timeout_ms = 150;
  return config;
}

float sum_of_ones(nearlightComm_t comm) {
  float value = 1;
  EXPECT_EQ(nearlightAllReduce(&value, &value, 1, nearlightFloat32, nearlightSum, comm, nullptr),
            nearlightSuccess)
      << nearlightGetLastError();
  return value;
}

TEST(ApiRecovery, ResetBringsAFailedGroupBack) {
  const HostGroup group(3, hasty_config());
  for (int time = 0; time < 3; ++time) {
    group.run([time](int rank, nearlightComm_t comm) {
      float value = 1;
      if (rank == time) return;
      EXPECT_NE(nearlightAllReduce(&value, &value, 1, nearlightFloat32, nearlightSum, comm, nullptr),
                nearlightSuccess);
    });
    group.run([](int, nearlightComm_t comm) {
      EXPECT_EQ(nearlightCommReset(comm, 0), nearlightSuccess) << nearlightGetLastError();
      nearlightCommStatus_t status = NEARLIGHT_COMM_STATUS_INITIALIZER;
      EXPECT_EQ(nearlightCommGetStatus(comm, &status), nearlightSuccess);
      EXPECT_EQ(status.result, nearlightSuccess) << status.text;
      EXPECT_EQ(status.peer, -1);
      for (int i = 0; i < 10; ++i) EXPECT_EQ(sum_of_ones(comm), 3.0f);
    });
  }
}

TEST(ApiRecovery, ResetNamesWhoDoesNotCome) {
  const HostGroup group(2);
  expect_error(nearlightCommReset(group[0], 50), nearlightTimeout,
               {"nearlightCommReset on rank 0", "rank(s) 1"});
  expect_error(nearlightCommReset(group[0], -1), nearlightInvalidArgument, {"limit", "-1 ms"});
  expect_error(nearlightCommReset(nullptr, 0), nearlightInvalidArgument, {"comm is NULL"});
  group.run([](int, nearlightComm_t comm) {
    EXPECT_EQ(nearlightCommReset(comm, 60'000), nearlightSuccess) << nearlightGetLastError();
    EXPECT_EQ(sum_of_ones(comm), 2.0f);
  });
}

TEST(ApiRecovery, ShrinkGoesOnWithoutARank) {
  HostGroup group(3);
  // Rank 1 is gone.
  EXPECT_EQ(nearlightCommDestroy(group[1]), nearlightSuccess);
  group.forget(1);
  group.run([](int rank, nearlightComm_t comm) {
    if (rank == 1) return;
    expect_error(nearlightCommReset(comm, 0), nearlightRemoteError, {"rank 1"});
    const int members[] = {0, 2};
    nearlightComm_t shrunk = nullptr;
    EXPECT_EQ(nearlightCommShrink(comm, members, 2, 0, &shrunk), nearlightSuccess) << nearlightGetLastError();
    int place = -1, nranks = 0;
    EXPECT_EQ(nearlightCommRank(shrunk, &place), nearlightSuccess);
    EXPECT_EQ(nearlightCommCount(shrunk, &nranks), nearlightSuccess);
    EXPECT_EQ(place, rank / 2);
    EXPECT_EQ(nranks, 2);
    EXPECT_EQ(sum_of_ones(shrunk), 2.0f);
    float value = 1;
    expect_error(nearlightAllReduce(&value, &value, 1, nearlightFloat32, nearlightSum, comm, nullptr),
                 nearlightAborted, {"reset of rank"});  // the first reason stays
    EXPECT_EQ(nearlightCommDestroy(shrunk), nearlightSuccess);
  });
}

TEST(ApiRecovery, ShrinkNamesItsArguments) {
  const HostGroup group(2);
  nearlightComm_t shrunk = nullptr;
  const int both[] = {0, 1}, other[] = {1}, wrong[] = {0, 2};
  expect_error(nearlightCommShrink(group[0], nullptr, 1, 0, &shrunk), nearlightInvalidArgument,
               {"members is NULL"});
  expect_error(nearlightCommShrink(group[0], both, 2, 0, nullptr), nearlightInvalidArgument,
               {"shrunk is NULL"});
  expect_error(nearlightCommShrink(group[0], both, 0, 0, &shrunk), nearlightInvalidArgument, {"nmembers: 0"});
  expect_error(nearlightCommShrink(group[0], both, 3, 0, &shrunk), nearlightInvalidArgument, {"nmembers: 3"});
  expect_error(nearlightCommShrink(group[0], other, 1, 0, &shrunk), nearlightInvalidArgument,
               {"members", "itself"});
  expect_error(nearlightCommShrink(group[0], wrong, 2, 0, &shrunk), nearlightInvalidArgument,
               {"members", "no rank"});
  expect_error(nearlightCommShrink(nullptr, both, 2, 0, &shrunk), nearlightInvalidArgument, {"comm is NULL"});
  EXPECT_EQ(shrunk, nullptr);
  group.run([](int, nearlightComm_t comm) { EXPECT_EQ(sum_of_ones(comm), 2.0f); });
}

TEST(ApiRecovery, SetPathMovesCallsAndBack) {
  const HostGroup group(2);
  group.run([](int, nearlightComm_t comm) {
    for (const char* const path :
         {"simple", "ll", "sentinel", static_cast<const char*>(nullptr), "two_shot", ""}) {
      EXPECT_EQ(nearlightCommSetPath(comm, path), nearlightSuccess) << nearlightGetLastError();
      nearlightRoute_t route = NEARLIGHT_ROUTE_INITIALIZER;
      EXPECT_EQ(
          nearlightExplain(comm, nearlightCollectiveAllReduce, 100, nearlightFloat32, nearlightSum, &route),
          nearlightSuccess);
      if (path != nullptr && *path != 0 && std::string(path) != "two_shot") {
        EXPECT_STREQ(route.protocol, path);
      }
      EXPECT_EQ(sum_of_ones(comm), 2.0f);
    }
    expect_error(nearlightCommSetPath(comm, "fast"), nearlightInvalidArgument,
                 {"path is \"fast\"", "two_shot"});
  });
  expect_error(nearlightCommSetPath(nullptr, "ll"), nearlightInvalidArgument, {"comm is NULL"});
}

TEST(ApiRecovery, Cpp) {
  auto group = Communicator::host_group(3);
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < group.size(); ++rank) {
    threads.emplace_back([&, rank] {
      group[rank].reset();
      group[rank].set_path("simple");
      if (rank == 2) return;
      Communicator smaller = group[rank].shrink({0, 1}, std::chrono::seconds(60));
      float value = 1;
      smaller.all_reduce(&value, &value, 1, f32, sum);
      EXPECT_EQ(value, 2.0f);
      EXPECT_EQ(group[rank].status().code, nearlight::Code::aborted);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace nearlight::test
