// Communicators of CPU ranks through the C API, from creation to the end.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <string>

#include "tests/api/api_support.hpp"
#include "tests/support/ranks.hpp"

namespace nearlight::test {
namespace {

using namespace std::chrono_literals;

void on_both(const std::function<void(int rank)>& body) {
  std::thread first([&] { body(0); }), second([&] { body(1); });
  first.join();
  second.join();
}

TEST(ApiCommunicator, SumsOverAllRanks) {
  for (const int nranks : {1, 2, 3, 8}) {
    const HostGroup group(nranks);
    group.run([nranks](int rank, nearlightComm_t comm) {
      for (const std::size_t count : {1, 7, 1000, 100'000}) {
        std::vector<float> send(count, static_cast<float>(rank + 1)), recv(count);
        ASSERT_EQ(nearlightAllReduce(send.data(), recv.data(), count, nearlightFloat32, nearlightSum, comm,
                                     nullptr),
                  nearlightSuccess)
            << nearlightGetLastError();
        const float sum = static_cast<float>(nranks * (nranks + 1) / 2);
        for (const float value : recv) ASSERT_EQ(value, sum);
        ASSERT_EQ(nearlightAllReduce(send.data(), send.data(), count, nearlightFloat32, nearlightMax, comm,
                                     nullptr),
                  nearlightSuccess);
        for (const float value : send) ASSERT_EQ(value, static_cast<float>(nranks));
      }
    });
  }
}

TEST(ApiCommunicator, OneRankByRankAndKey) {
  nearlightComm_t comm = nullptr;
  ASSERT_EQ(nearlightCommCreateHost(&comm, 0, 1, "key", nullptr), nearlightSuccess)
      << nearlightGetLastError();
  float value = 5;
  EXPECT_EQ(nearlightAllReduce(&value, &value, 1, nearlightFloat32, nearlightSum, comm, nullptr),
            nearlightSuccess);
  EXPECT_EQ(value, 5);
  EXPECT_EQ(nearlightCommDestroy(comm), nearlightSuccess);
}

// Ranks that meet by a key may be threads of one process as well.
TEST(ApiCommunicator, ThreadsByRankAndKey) {
  const std::string key = fresh_key();
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 3; ++rank) {
    threads.emplace_back([&key, rank] {
      const nearlightConfig_t config = patient_config();
      nearlightComm_t comm = nullptr;
      ASSERT_EQ(nearlightCommCreateHost(&comm, rank, 3, key.c_str(), &config), nearlightSuccess)
          << nearlightGetLastError();
      float value = static_cast<float>(rank);
      EXPECT_EQ(nearlightAllReduce(&value, &value, 1, nearlightFloat32, nearlightSum, comm, nullptr),
                nearlightSuccess)
          << nearlightGetLastError();
      EXPECT_EQ(value, 3);
      EXPECT_EQ(nearlightCommDestroy(comm), nearlightSuccess);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// A child has the memory of its parent's communicators, not the threads that watch their peers.
TEST(ApiCommunicator, AChildMadeByForkHasNone) {
  const std::string key = fresh_key();
  const nearlightConfig_t config = patient_config();
  nearlightComm_t comms[2] = {};
  on_both([&](int rank) {
    EXPECT_EQ(nearlightCommCreateHost(&comms[rank], rank, 2, key.c_str(), &config), nearlightSuccess)
        << nearlightGetLastError();
  });
  nearlightRedOp_t op = nearlightSum;
  const float factor = 2;
  ASSERT_EQ(
      nearlightRedOpCreatePreMulSum(&op, &factor, nearlightFloat32, nearlightScalarHostImmediate, comms[0]),
      nearlightSuccess);

  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    ::alarm(60);  // ends a call that does not end
    float value = 1;
    const auto reduce = [&](nearlightComm_t comm, nearlightRedOp_t with) {
      return nearlightAllReduce(&value, &value, 1, nearlightFloat32, with, comm, nullptr);
    };
    int failed = 0;
    for (const nearlightComm_t comm : comms) {
      failed += reduce(comm, nearlightSum) != nearlightInvalidArgument;
      failed += nearlightCommAbort(comm) != nearlightInvalidArgument;
      failed += nearlightCommDestroy(comm) != nearlightInvalidArgument;
      failed += std::strstr(nearlightGetLastError(), "forked") == nullptr;
    }
    // It may have its own.
    nearlightComm_t own = nullptr;
    failed += nearlightCommCreateHostGroup(&own, 1, &config) != nearlightSuccess;
    failed += own == comms[0] || own == comms[1];
    failed += reduce(own, op) != nearlightInvalidArgument;
    failed += reduce(own, nearlightSum) != nearlightSuccess;
    failed += nearlightCommDestroy(own) != nearlightSuccess;
    ::_exit(failed);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status)) << status;
  EXPECT_EQ(WEXITSTATUS(status), 0);

  on_both([&](int rank) {
    float value = 1;
    EXPECT_EQ(nearlightAllReduce(&value, &value, 1, nearlightFloat32, nearlightSum, comms[rank], nullptr),
              nearlightSuccess)
        << nearlightGetLastError();
    EXPECT_EQ(value, 2);
  });
  for (const nearlightComm_t comm : comms) EXPECT_EQ(nearlightCommDestroy(comm), nearlightSuccess);
}

TEST(ApiCommunicator, TellsWhatItIs) {
  const HostGroup group(3);
  for (int rank = 0; rank < 3; ++rank) {
    int got = -1, nranks = -1;
    EXPECT_EQ(nearlightCommRank(group[rank], &got), nearlightSuccess);
    EXPECT_EQ(nearlightCommCount(group[rank], &nranks), nearlightSuccess);
    EXPECT_EQ(got, rank);
    EXPECT_EQ(nranks, 3);
    nearlightCommInfo_t info = NEARLIGHT_COMM_INFO_INITIALIZER;
    ASSERT_EQ(nearlightCommGetInfo(group[rank], &info), nearlightSuccess);
    EXPECT_EQ(info.size, sizeof info);
    EXPECT_EQ(info.rank, rank);
    EXPECT_EQ(info.nranks, 3);
    EXPECT_STREQ(info.backend, "host");
    EXPECT_STREQ(info.memory, "shm");
    EXPECT_STREQ(info.memory_reason, "");
    EXPECT_GT(info.scratch_bytes, 0u);
    nearlightCommStatus_t status = NEARLIGHT_COMM_STATUS_INITIALIZER;
    ASSERT_EQ(nearlightCommGetStatus(group[rank], &status), nearlightSuccess);
    EXPECT_EQ(status.result, nearlightSuccess);
    EXPECT_EQ(status.rank, -1);
    EXPECT_STREQ(status.text, "");
  }
}

TEST(ApiCommunicator, ExplainsItsRoute) {
  const HostGroup group(2);
  nearlightRoute_t small = NEARLIGHT_ROUTE_INITIALIZER, large = NEARLIGHT_ROUTE_INITIALIZER;
  ASSERT_EQ(
      nearlightExplain(group[0], nearlightCollectiveAllReduce, 2, nearlightFloat32, nearlightSum, &small),
      nearlightSuccess);
  ASSERT_EQ(nearlightExplain(group[1], nearlightCollectiveAllReduce, 1 << 20, nearlightFloat32, nearlightSum,
                             &large),
            nearlightSuccess);
  EXPECT_STREQ(small.algorithm, "one_shot");
  EXPECT_STREQ(small.protocol, "ll");
  EXPECT_STREQ(large.protocol, "simple");
  EXPECT_STRNE(small.reason, "");
  EXPECT_STRNE(small.reason, large.reason);
  EXPECT_EQ(small.grid, 1u);
}

// The reason is a program's way to see what its environment has done.
TEST(ApiCommunicator, ExplainsAForcedRoute) {
  ::setenv("NEARLIGHT_FORCE_PATH", "sentinel", 1);
  const HostGroup group(2);
  ::unsetenv("NEARLIGHT_FORCE_PATH");
  nearlightRoute_t route = NEARLIGHT_ROUTE_INITIALIZER;
  ASSERT_EQ(
      nearlightExplain(group[0], nearlightCollectiveAllReduce, 2, nearlightFloat32, nearlightSum, &route),
      nearlightSuccess);
  EXPECT_STREQ(route.protocol, "sentinel");
  EXPECT_NE(std::strstr(route.reason, "NEARLIGHT_FORCE_PATH"), nullptr) << route.reason;
  ASSERT_EQ(nearlightExplain(group[0], nearlightCollectiveAllReduce, 2, nearlightInt32, nearlightSum, &route),
            nearlightSuccess);
  EXPECT_STREQ(route.protocol, "ll");
  EXPECT_EQ(std::strstr(route.reason, "NEARLIGHT_FORCE_PATH"), nullptr) << route.reason;
}

TEST(ApiCommunicator, ABadForcedRouteIsNamed) {
  ::setenv("NEARLIGHT_FORCE_PATH", "fast", 1);
  nearlightComm_t comms[2] = {nullptr, nullptr};
  const nearlightResult_t result = nearlightCommCreateHostGroup(comms, 2, nullptr);
  ::unsetenv("NEARLIGHT_FORCE_PATH");
  EXPECT_EQ(result, nearlightInvalidArgument);
  const std::string text = nearlightGetLastError();
  EXPECT_NE(text.find("NEARLIGHT_FORCE_PATH is \"fast\"; it takes one of ll, simple, sentinel, ll128, "
                      "two_shot, two_shot_atomic"),
            std::string::npos)
      << text;
}

// One that was compiled before there were reasons has no room for them.
TEST(ApiCommunicator, StructsMayBeShorter) {
  const HostGroup group(1);
  nearlightCommInfo_t info;
  std::memset(&info, 0x77, sizeof info);
  const nearlightCommInfo_t before = info;
  info.size = offsetof(nearlightCommInfo_t, memory_reason);
  ASSERT_EQ(nearlightCommGetInfo(group[0], &info), nearlightSuccess);
  EXPECT_EQ(info.size, offsetof(nearlightCommInfo_t, memory_reason));
  EXPECT_STREQ(info.memory, "shm");
  EXPECT_EQ(info.memory_reason, before.memory_reason);
}

// What a program that was compiled with another header passes: it gets what its struct has room for.
TEST(ApiCommunicator, StructsMayBeLonger) {
  const HostGroup group(1);
  struct Longer {
    nearlightCommInfo_t info;
    char later[24];
  } longer;
  std::memset(&longer, 0x77, sizeof longer);
  longer.info.size = sizeof longer;
  ASSERT_EQ(nearlightCommGetInfo(group[0], &longer.info), nearlightSuccess);
  EXPECT_EQ(longer.info.size, sizeof longer);
  EXPECT_STREQ(longer.info.backend, "host");
  for (const char byte : longer.later) EXPECT_EQ(byte, 0);

  struct LongerConfig {
    nearlightConfig_t config;
    std::uint64_t later[2];
  } config{NEARLIGHT_CONFIG_INITIALIZER, {0, 0}};
  config.config.size = sizeof config;
  nearlightComm_t comm = nullptr;
  ASSERT_EQ(nearlightCommCreateHostGroup(&comm, 1, &config.config), nearlightSuccess);
  EXPECT_EQ(nearlightCommDestroy(comm), nearlightSuccess);
  config.later[1] = 1;  // asks for something that this library does not know
  expect_error(nearlightCommCreateHostGroup(&comm, 1, &config.config), nearlightUnsupported, {"config"});
}

TEST(ApiCommunicator, ConfigurationCounts) {
  nearlightConfig_t config = patient_config();
  config.slots = 32;
  config.chunk_bytes = 256;
  const HostGroup small(2, config), usual(2);
  nearlightCommInfo_t small_info = NEARLIGHT_COMM_INFO_INITIALIZER,
                      usual_info = NEARLIGHT_COMM_INFO_INITIALIZER;
  ASSERT_EQ(nearlightCommGetInfo(small[0], &small_info), nearlightSuccess);
  ASSERT_EQ(nearlightCommGetInfo(usual[0], &usual_info), nearlightSuccess);
  EXPECT_LT(small_info.scratch_bytes, usual_info.scratch_bytes);
}

TEST(ApiCommunicator, AMissingRankIsATimeoutThatNamesIt) {
  nearlightConfig_t config = NEARLIGHT_CONFIG_INITIALIZER;
  config.timeout_ms = 50;
  const HostGroup group(2, config);
  float value = 1;
  expect_error(nearlightAllReduce(&value, &value, 1, nearlightFloat32, nearlightSum, group[0], nullptr),
               nearlightTimeout, {"nearlightAllReduce on rank 0", "rank 1", "50 ms"});
  nearlightCommStatus_t status = NEARLIGHT_COMM_STATUS_INITIALIZER;
  ASSERT_EQ(nearlightCommGetStatus(group[0], &status), nearlightSuccess);
  EXPECT_EQ(status.result, nearlightTimeout);
  EXPECT_EQ(status.rank, 0);
  EXPECT_EQ(status.peer, 1);
  EXPECT_NE(status.time_ns, 0u);
  EXPECT_THAT(status.text, testing::HasSubstr("rank 1"));
  // It stays failed, at once, and nothing is written.
  value = 7;
  expect_error(nearlightAllReduce(&value, &value, 1, nearlightFloat32, nearlightSum, group[0], nullptr),
               nearlightTimeout, {"rank 1"});
  EXPECT_EQ(value, 7);
}

TEST(ApiCommunicator, AbortEndsACallOfAnotherThread) {
  HostGroup group(2);
  std::thread waiting([&] {
    float value = 1;
    nearlightResult_t result;
    do {  // refused while the call below is just being made
      result = nearlightAllReduce(&value, &value, 1, nearlightFloat32, nearlightSum, group[0], nullptr);
    } while (result == nearlightInvalidUsage);
    expect_error(result, nearlightAborted, {"rank 0"});
  });
  // A call that never begins: it names its argument until the other thread is inside, where that one stays,
  // as rank 1 never calls.
  EXPECT_TRUE(wait_until(
      [&] {
        return nearlightAllReduce(nullptr, nullptr, 1, nearlightFloat32, nearlightSum, group[0], nullptr) ==
               nearlightInvalidUsage;
      },
      60s));
  // Queries are answered while the call waits; a second call and the end are refused.
  int rank = -1;
  EXPECT_EQ(nearlightCommRank(group[0], &rank), nearlightSuccess);
  float other = 3;
  expect_error(nearlightAllReduce(&other, &other, 1, nearlightFloat32, nearlightSum, group[0], nullptr),
               nearlightInvalidUsage, {"another thread"});
  expect_error(nearlightCommDestroy(group[0]), nearlightInvalidUsage, {"another thread", "abort"});
  EXPECT_EQ(nearlightCommAbort(group[0]), nearlightSuccess);
  waiting.join();
  EXPECT_EQ(other, 3);
  expect_error(nearlightAllReduce(&other, &other, 1, nearlightFloat32, nearlightSum, group[0], nullptr),
               nearlightAborted, {"rank 0"});
}

TEST(ApiCommunicator, ADestroyedOneIsAnErrorEverywhere) {
  HostGroup group(2);
  const nearlightComm_t dead = group[0];
  EXPECT_EQ(nearlightCommDestroy(dead), nearlightSuccess);
  group.forget(0);
  float value = 7;
  int rank = 77;
  nearlightCommStatus_t status = NEARLIGHT_COMM_STATUS_INITIALIZER;
  const auto all_fail = [&] {
    expect_error(nearlightAllReduce(&value, &value, 1, nearlightFloat32, nearlightSum, dead, nullptr),
                 nearlightInvalidArgument, {"destroyed"});
    expect_error(nearlightCommRank(dead, &rank), nearlightInvalidArgument, {"destroyed"});
    expect_error(nearlightCommGetStatus(dead, &status), nearlightInvalidArgument, {"destroyed"});
    expect_error(nearlightCommAbort(dead), nearlightInvalidArgument, {"destroyed"});
    expect_error(nearlightCommDestroy(dead), nearlightInvalidArgument, {"destroyed"});
  };
  all_fail();
  // Also when another communicator has taken its place.
  std::vector<std::unique_ptr<HostGroup>> later;
  for (int i = 0; i < 4; ++i) later.push_back(std::make_unique<HostGroup>(1));
  all_fail();
  EXPECT_EQ(value, 7);
  EXPECT_EQ(rank, 77);
  for (const auto& one : later) {
    EXPECT_NE((*one)[0], dead);
    EXPECT_EQ(nearlightCommRank((*one)[0], &rank), nearlightSuccess);
  }
}

// Queries of one thread while another one ends the communicator: answered or refused, never anything else.
TEST(ApiCommunicator, QueriesRaceWithTheEnd) {
  for (int round = 0; round < 50; ++round) {
    HostGroup group(1);
    const nearlightComm_t comm = group[0];
    std::atomic<bool> stop{false};
    std::thread asking([&] {
      while (!stop) {
        nearlightCommInfo_t info = NEARLIGHT_COMM_INFO_INITIALIZER;
        const nearlightResult_t result = nearlightCommGetInfo(comm, &info);
        if (result == nearlightSuccess) {
          EXPECT_STREQ(info.backend, "host");
        } else {
          EXPECT_EQ(result, nearlightInvalidArgument);
        }
        nearlightCommStatus_t status = NEARLIGHT_COMM_STATUS_INITIALIZER;
        static_cast<void>(nearlightCommGetStatus(comm, &status));
      }
    });
    std::this_thread::yield();
    EXPECT_EQ(nearlightCommDestroy(comm), nearlightSuccess) << nearlightGetLastError();
    group.forget(0);
    stop = true;
    asking.join();
  }
}

TEST(ApiCommunicator, ManyComeAndGo) {
  std::vector<nearlightComm_t> seen;
  nearlightConfig_t config = patient_config();
  config.slots = 32;
  config.chunk_bytes = 256;
  for (int i = 0; i < 600; ++i) {
    nearlightComm_t comm = nullptr;
    ASSERT_EQ(nearlightCommCreateHostGroup(&comm, 1, &config), nearlightSuccess) << nearlightGetLastError();
    EXPECT_EQ(std::count(seen.begin(), seen.end(), comm), 0);
    seen.push_back(comm);
    if (i % 2 == 0) {
      ASSERT_EQ(nearlightCommDestroy(comm), nearlightSuccess);
    }
  }
  for (std::size_t i = 1; i < seen.size(); i += 2) ASSERT_EQ(nearlightCommDestroy(seen[i]), nearlightSuccess);
}

TEST(ApiCommunicator, WithoutCudaTheReasonIsTold) {
  nearlightComm_t comm = nullptr;
  const int device = 0;
  const auto expect_told = [&](nearlightResult_t result, const char* call) {
    EXPECT_TRUE(result == nearlightUnsupported || result == nearlightCudaError) << nearlightGetLastError();
    EXPECT_THAT(nearlightGetLastError(), testing::StartsWith(call));
    EXPECT_EQ(comm, nullptr);
  };
  const nearlightResult_t result = nearlightCommCreateCudaGroup(&comm, 1, &device, nullptr);
  if (result == nearlightSuccess) {
    EXPECT_EQ(nearlightCommDestroy(comm), nearlightSuccess);
    GTEST_SKIP() << "this machine has a GPU";
  }
  expect_told(result, "nearlightCommCreateCudaGroup");
  expect_told(nearlightCommCreateCuda(&comm, 0, 0, 1, "key", nullptr), "nearlightCommCreateCuda");
}

// Once, whatever is made afterwards; and a name that is known gets none.
TEST(ApiVariables, AnUnknownOneIsWarnedAboutOnce) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto body = [] {
    ::setenv("NEARLIGHT_TIMOUT_MS", "5", 1);
    ::setenv("NEARLIGHT_TIMEOUT_MS", "5000", 1);
    for (int i = 0; i < 3; ++i) {
      nearlightComm_t comm = nullptr;
      static_cast<void>(nearlightCommCreateHostGroup(&comm, 1, nullptr));
      static_cast<void>(nearlightCommDestroy(comm));
    }
    std::exit(0);
  };
  EXPECT_EXIT(
      body(), testing::ExitedWithCode(0),
      testing::Eq("nearlight: NEARLIGHT_TIMOUT_MS is no variable of this version and changes nothing; the "
                  "nearest is NEARLIGHT_TIMEOUT_MS\n"));
}

TEST(ApiErrors, TheTextIsTheThreadsOwn) {
  EXPECT_EQ(nearlightGetVersion(nullptr), nearlightInvalidArgument);
  const std::string mine = nearlightGetLastError();
  std::thread([&] {
    EXPECT_STREQ(nearlightGetLastError(), "");
    EXPECT_EQ(nearlightCommRank(nullptr, nullptr), nearlightInvalidArgument);
  }).join();
  EXPECT_EQ(mine, nearlightGetLastError());
  int version = 0;
  EXPECT_EQ(nearlightGetVersion(&version), nearlightSuccess);
  EXPECT_EQ(version, NEARLIGHT_VERSION_CODE);
  EXPECT_EQ(mine, nearlightGetLastError());  // success leaves it
}

TEST(ApiErrors, EveryCodeHasWords) {
  std::vector<std::string> all;
  for (const int code : {0, 1, 2, 3, 4, 5, 6, 7, 8, 100, 101}) {
    const std::string words = nearlightGetErrorString(static_cast<nearlightResult_t>(code));
    EXPECT_NE(words, "unknown code") << code;
    EXPECT_EQ(std::count(all.begin(), all.end(), words), 0) << words;
    all.push_back(words);
  }
  for (const int code : {-1, 9, 99, 102, 0x7fffffff}) {
    EXPECT_STREQ(nearlightGetErrorString(static_cast<nearlightResult_t>(code)), "unknown code");
  }
}

TEST(ApiVersion, HeaderAndLibraryMustFit) {
  EXPECT_EQ(NEARLIGHT_CHECK_VERSION(), nearlightSuccess);
  for (const int other :
       {NEARLIGHT_VERSION_CODE + 1, NEARLIGHT_VERSION_CODE + 100, NEARLIGHT_VERSION_CODE + 10000, 0, -1,
        NEARLIGHT_VERSION_CODE % 10000 + (NEARLIGHT_MAJOR + 1) * 10000}) {
    expect_error(nearlightCheckVersion(other), nearlightUnsupported, {"header_version", "the library is"});
  }
}

}  // namespace
}  // namespace nearlight::test
