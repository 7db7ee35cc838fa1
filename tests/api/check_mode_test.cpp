// Check mode: ranks that call different things are told so, all of them, with both values, and nothing is
// written; they can go on. Without it such a call ends in a timeout and never in silence.
#include <chrono>
#include <cstdlib>
#include <cstring>

#include "tests/api/api_support.hpp"

namespace nearlight::test {
namespace {

nearlightConfig_t checked() {
  nearlightConfig_t config = patient_config();
  config.check = 1;
  return config;
}

struct Arguments {
  std::size_t count = 1024;
  nearlightDataType_t type = nearlightFloat32;
  nearlightRedOp_t op = nearlightSum;
};

TEST(CheckMode, DifferencesAreToldToAllRanksWithBothValues) {
  struct Case {
    Arguments other;
    std::vector<std::string> words;
  };
  const Case cases[] = {
      {{1000, nearlightFloat32, nearlightSum}, {"count", "1024 on rank 0", "1000 on rank 2"}},
      {{0, nearlightFloat32, nearlightSum}, {"count", "1024 on rank 0", "0 on rank 2"}},
      {{1024, nearlightInt32, nearlightSum}, {"type", "float on rank 0", "int32 on rank 2"}},
      {{1024, nearlightBfloat16, nearlightSum}, {"type", "float on rank 0", "bfloat16 on rank 2"}},
      {{1024, nearlightFloat32, nearlightMax}, {"op", "sum on rank 0", "max on rank 2"}},
  };
  const HostGroup group(3, checked());
  group.run([&cases](int rank, nearlightComm_t comm) {
    std::vector<float> send(1024, 1.0f), recv(1024);
    std::uint64_t number = 0;
    const auto call = [&](const Arguments& with) {
      return nearlightAllReduce(send.data(), recv.data(), with.count, with.type, with.op, comm, nullptr);
    };
    for (const Case& one : cases) {
      std::memset(recv.data(), 0x77, recv.size() * sizeof(float));
      const std::vector<float> before = recv;
      expect_error(call(rank == 2 ? one.other : Arguments()), nearlightInvalidUsage, one.words);
      EXPECT_THAT(nearlightGetLastError(), testing::HasSubstr("call " + std::to_string(number++)));
      EXPECT_EQ(std::memcmp(recv.data(), before.data(), recv.size() * sizeof(float)), 0);
      // And on they go.
      EXPECT_EQ(call({}), nearlightSuccess) << nearlightGetLastError();
      ++number;
      EXPECT_EQ(recv[1023], 3.0f);
    }
    nearlightCommStatus_t status = NEARLIGHT_COMM_STATUS_INITIALIZER;
    EXPECT_EQ(nearlightCommGetStatus(comm, &status), nearlightSuccess);
    EXPECT_EQ(status.result, nearlightSuccess);
  });
}

// The factor of a pre-multiplied sum is each rank's own and not compared; the operator is.
TEST(CheckMode, FactorsMayDiffer) {
  const HostGroup group(2, checked());
  group.run([](int rank, nearlightComm_t comm) {
    const float factor = rank == 0 ? 10.0f : 100.0f;
    nearlightRedOp_t op = nearlightSum;
    ASSERT_EQ(
        nearlightRedOpCreatePreMulSum(&op, &factor, nearlightFloat32, nearlightScalarHostImmediate, comm),
        nearlightSuccess);
    float value = static_cast<float>(rank + 1);
    EXPECT_EQ(nearlightAllReduce(&value, &value, 1, nearlightFloat32, op, comm, nullptr), nearlightSuccess)
        << nearlightGetLastError();
    EXPECT_EQ(value, 210.0f);
    expect_error(
        nearlightAllReduce(&value, &value, 1, nearlightFloat32, rank == 0 ? op : nearlightSum, comm, nullptr),
        nearlightInvalidUsage, {"op", "mulsum on rank 0", "sum on rank 1"});
    EXPECT_EQ(value, 210.0f);
  });
}

// Counts with the same largest, which alone the route goes by.
TEST(CheckMode, CountsOfEachRankAreCompared) {
  const HostGroup group(2, checked());
  group.run([](int rank, nearlightComm_t comm) {
    const std::size_t mine[2] = {8, rank == 0 ? 4u : 5u}, right[2] = {8, 4};
    float send[16] = {}, recv[16] = {};
    expect_error(nearlightAllGatherV(send, recv, mine, nullptr, nearlightFloat32, comm, nullptr),
                 nearlightInvalidUsage, {"the count of rank 1 is 4 on rank 0, 5 on rank 1"});
    EXPECT_EQ(nearlightAllGatherV(send, recv, right, nullptr, nearlightFloat32, comm, nullptr),
              nearlightSuccess)
        << nearlightGetLastError();
  });
}

// A bad argument on one rank is that rank's error; it can try again while the others wait.
TEST(CheckMode, OneRankTriesAgain) {
  const HostGroup group(2, checked());
  group.run([](int rank, nearlightComm_t comm) {
    float value = 1;
    if (rank == 1) {
      expect_error(nearlightAllReduce(&value, nullptr, 1, nearlightFloat32, nearlightSum, comm, nullptr),
                   nearlightInvalidArgument, {"recv"});
    }
    EXPECT_EQ(nearlightAllReduce(&value, &value, 1, nearlightFloat32, nearlightSum, comm, nullptr),
              nearlightSuccess);
    EXPECT_EQ(value, 2);
  });
}

TEST(CheckMode, ARankThatDoesNotComeIsNamedAndTheCommunicatorHasFailed) {
  nearlightConfig_t config = checked();
  config.timeout_ms = 50;
  const HostGroup group(2, config);
  float value = 7;
  for (int i = 0; i < 2; ++i) {
    expect_error(nearlightAllReduce(&value, &value, 1, nearlightFloat32, nearlightSum, group[0], nullptr),
                 nearlightTimeout, {"check mode", "rank(s) 1"});
  }
  EXPECT_EQ(value, 7);
  nearlightCommStatus_t status = NEARLIGHT_COMM_STATUS_INITIALIZER;
  ASSERT_EQ(nearlightCommGetStatus(group[0], &status), nearlightSuccess);
  EXPECT_EQ(status.result, nearlightTimeout);
}

// The same mistakes without check mode: an error that names a rank, or the count that was asked for is
// reduced.
TEST(CheckMode, WithoutItDifferentCountsEndInATimeout) {
  nearlightConfig_t config = NEARLIGHT_CONFIG_INITIALIZER;
  config.timeout_ms = 200;
  config.check = -1;
  config.slots = 32;
  config.chunk_bytes = 256;
  const HostGroup group(2, config);
  nearlightResult_t results[2];
  group.run([&results](int rank, nearlightComm_t comm) {
    std::vector<float> data(4096, 1.0f);
    // Rank 0 has more rounds to go than rank 1.
    results[rank] = nearlightAllReduce(data.data(), data.data(), rank == 0 ? 4096 : 64, nearlightFloat32,
                                       nearlightSum, comm, nullptr);
    if (results[rank] != nearlightSuccess) {
      EXPECT_THAT(nearlightGetLastError(), testing::HasSubstr("nothing from rank"));
    }
  });
  EXPECT_EQ(results[0], nearlightTimeout);
}

TEST(CheckMode, TheVariableTurnsItOnWhereTheConfigurationDoesNotSay) {
  ::setenv("NEARLIGHT_CHECK", "1", 1);
  const HostGroup by_variable(2);
  nearlightConfig_t off = patient_config();
  off.check = -1;
  const HostGroup not_checked(2, off);
  ::setenv("NEARLIGHT_CHECK", "maybe", 1);
  nearlightComm_t comms[2] = {};
  expect_error(nearlightCommCreateHostGroup(comms, 2, nullptr), nearlightInvalidArgument,
               {"NEARLIGHT_CHECK", "maybe", "0 or 1"});
  const HostGroup said(2, checked());  // what the program says stands above the environment
  ::unsetenv("NEARLIGHT_CHECK");
  by_variable.run([](int rank, nearlightComm_t comm) {
    float values[2] = {1, 1};
    expect_error(
        nearlightAllReduce(values, values, rank == 0 ? 1 : 2, nearlightFloat32, nearlightSum, comm, nullptr),
        nearlightInvalidUsage, {"count"});
  });
  not_checked.run([](int, nearlightComm_t comm) {
    float value = 1;
    EXPECT_EQ(nearlightAllReduce(&value, &value, 1, nearlightFloat32, nearlightSum, comm, nullptr),
              nearlightSuccess);
  });
}

}  // namespace
}  // namespace nearlight::test
