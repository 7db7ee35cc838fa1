// Sends and receives through the C and C++ API, alone and in groups.
#include <nearlight/nearlight.hpp>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "tests/api/api_support.hpp"

namespace nearlight::test {
namespace {

constexpr int kRanks = 3;

TEST(SendRecv, OneToAnother) {
  const HostGroup group(kRanks);
  group.run([](int rank, nearlightComm_t comm) {
    std::vector<float> values = {1, 2, 3};
    if (rank == 0) {
      ASSERT_EQ(nearlightSend(values.data(), 3, nearlightFloat32, 2, comm, nullptr), nearlightSuccess)
          << nearlightGetLastError();
    } else if (rank == 2) {
      std::vector<float> got(3);
      ASSERT_EQ(nearlightRecv(got.data(), 3, nearlightFloat32, 0, comm, nullptr), nearlightSuccess)
          << nearlightGetLastError();
      EXPECT_EQ(got, values);
    }
    nearlightCounters_t counters = NEARLIGHT_COUNTERS_INITIALIZER;
    ASSERT_EQ(nearlightCommGetCounters(comm, &counters), nearlightSuccess);
    EXPECT_EQ(counters.send_recvs, rank == 1 ? 0u : 1u);
    EXPECT_EQ(counters.bytes, rank == 0 ? 12u : 0u);
  });
}

// More than there is room for, and each sends before it receives.
TEST(SendRecv, AGroupIsUnderWayAtOnce) {
  const HostGroup group(kRanks);
  group.run([](int rank, nearlightComm_t comm) {
    constexpr std::size_t kCount = 300'000;
    std::vector<std::int32_t> from(kCount), to(kCount, -1);
    for (std::size_t i = 0; i < kCount; ++i) from[i] = static_cast<std::int32_t>(i) * 8 + rank;
    ASSERT_EQ(nearlightGroupStart(), nearlightSuccess);
    ASSERT_EQ(nearlightGroupStart(), nearlightSuccess);  // nested
    EXPECT_EQ(nearlightSend(from.data(), kCount, nearlightInt32, (rank + 1) % kRanks, comm, nullptr),
              nearlightSuccess);
    ASSERT_EQ(nearlightGroupEnd(), nearlightSuccess);
    EXPECT_EQ(nearlightRecv(to.data(), kCount, nearlightInt32, (rank + 2) % kRanks, comm, nullptr),
              nearlightSuccess);
    EXPECT_EQ(to[0], -1);  // not before the end
    ASSERT_EQ(nearlightGroupEnd(), nearlightSuccess) << nearlightGetLastError();
    for (std::size_t i = 0; i < kCount; ++i)
      ASSERT_EQ(to[i], static_cast<std::int32_t>(i) * 8 + (rank + 2) % kRanks);
  });
}

TEST(SendRecv, AGroupWithAWrongCallStartsNothing) {
  const HostGroup group(2);
  group.run([](int rank, nearlightComm_t comm) {
    float value = 1, other = 2;
    ASSERT_EQ(nearlightGroupStart(), nearlightSuccess);
    EXPECT_EQ(nearlightSend(&value, 1, nearlightFloat32, 1 - rank, comm, nullptr), nearlightSuccess);
    EXPECT_EQ(nearlightRecv(&other, 1, nearlightFloat32, 5, comm, nullptr), nearlightInvalidArgument);
    EXPECT_NE(std::string(nearlightGetLastError()).find("peer: 5"), std::string::npos);
    EXPECT_EQ(nearlightRecv(&other, 1, static_cast<nearlightDataType_t>(99), 0, comm, nullptr),
              nearlightInvalidArgument);
    EXPECT_EQ(nearlightGroupEnd(), nearlightInvalidArgument);
    EXPECT_NE(std::string(nearlightGetLastError()).find("peer: 5"), std::string::npos);
    EXPECT_EQ(nearlightGroupEnd(), nearlightInvalidUsage);
    EXPECT_EQ(nearlightGroupDrop(), nearlightInvalidUsage);
    // A group that is dropped has not been.
    ASSERT_EQ(nearlightGroupStart(), nearlightSuccess);
    EXPECT_EQ(nearlightSend(&value, 1, nearlightFloat32, 1 - rank, comm, nullptr), nearlightSuccess);
    EXPECT_EQ(nearlightGroupDrop(), nearlightSuccess);
    // The next message is the first that there is.
    const std::int32_t number = 70 + rank;
    std::int32_t got = 0;
    ASSERT_EQ(nearlightGroupStart(), nearlightSuccess);
    EXPECT_EQ(nearlightSend(&number, 1, nearlightInt32, 1 - rank, comm, nullptr), nearlightSuccess);
    EXPECT_EQ(nearlightRecv(&got, 1, nearlightInt32, 1 - rank, comm, nullptr), nearlightSuccess);
    ASSERT_EQ(nearlightGroupEnd(), nearlightSuccess) << nearlightGetLastError();
    EXPECT_EQ(got, 71 - rank);
    nearlightRoute_t route = NEARLIGHT_ROUTE_INITIALIZER;
    EXPECT_EQ(nearlightExplain(comm, nearlightCollectiveSendRecv, 1'000'000, nearlightFloat32, nearlightSum,
                               &route),
              nearlightSuccess);
    EXPECT_STREQ(route.protocol, "simple");
  });
  EXPECT_EQ(nearlightSend(nullptr, 0, nearlightInt8, 0, nullptr, nullptr), nearlightInvalidArgument);
}

TEST(SendRecv, AHandleThatIsGoneIsAnError) {
  nearlightComm_t comms[1] = {};
  ASSERT_EQ(nearlightCommCreateHostGroup(comms, 1, nullptr), nearlightSuccess);
  int value = 1, got = 0;
  ASSERT_EQ(nearlightGroupStart(), nearlightSuccess);
  EXPECT_EQ(nearlightSend(&value, 1, nearlightInt32, 0, comms[0], nullptr), nearlightSuccess);
  EXPECT_EQ(nearlightRecv(&got, 1, nearlightInt32, 0, comms[0], nullptr), nearlightSuccess);
  ASSERT_EQ(nearlightGroupEnd(), nearlightSuccess) << nearlightGetLastError();
  EXPECT_EQ(got, 1);
  ASSERT_EQ(nearlightGroupStart(), nearlightSuccess);
  EXPECT_EQ(nearlightSend(&value, 1, nearlightInt32, 0, comms[0], nullptr), nearlightSuccess);
  ASSERT_EQ(nearlightCommDestroy(comms[0]), nearlightSuccess);
  EXPECT_EQ(nearlightRecv(&got, 1, nearlightInt32, 0, comms[0], nullptr), nearlightInvalidArgument);
  EXPECT_EQ(nearlightGroupEnd(), nearlightInvalidArgument);
  EXPECT_EQ(nearlightSend(&value, 1, nearlightInt32, 0, comms[0], nullptr), nearlightInvalidArgument);
}

TEST(SendRecv, InCpp) {
  auto comms = nearlight::Communicator::host_group(2);
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 2; ++rank) {
    ranks.emplace_back([&comm = comms[static_cast<std::size_t>(rank)], rank] {
      std::vector<double> from(40, rank + 0.5), to(40);
      together([&] {
        comm.send(from.data(), from.size(), DataType::f64, 1 - rank);
        comm.recv(to.data(), to.size(), DataType::f64, 1 - rank);
      });
      EXPECT_EQ(to, std::vector<double>(40, 1.5 - rank));
      EXPECT_THROW(together([&] {
                     comm.send(from.data(), from.size(), DataType::f64, 1 - rank);
                     throw std::runtime_error("of the program");
                   }),
                   std::runtime_error);
      EXPECT_THROW(together([&] { comm.send(from.data(), 1, DataType::f64, 9); }), Error);
      EXPECT_EQ(nearlightGroupEnd(), nearlightInvalidUsage);  // none is left open
      if (rank == 0) comm.send(from.data(), 3, DataType::f64, 1);
      if (rank == 1) comm.recv(to.data(), 3, DataType::f64, 0);
      if (rank == 1) {
        EXPECT_EQ(to[2], 0.5);
      }
      EXPECT_EQ(comm.counters().send_recvs, 2u);
    });
  }
  for (std::thread& rank : ranks) rank.join();
}

}  // namespace
}  // namespace nearlight::test
