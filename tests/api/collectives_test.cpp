// The collectives beside AllReduce, through the C and C++ API: what they give, in place and not, and what is
// said of arguments that cannot be.
#include <nearlight/nearlight.hpp>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <utility>

#include "tests/api/api_support.hpp"

namespace nearlight::test {
namespace {

constexpr int kRanks = 3;
constexpr std::size_t kCount = 5;  // odd: parts meet inside 16 bytes

std::vector<float> numbers_of(int rank, std::size_t count) {
  std::vector<float> numbers(count);
  std::iota(numbers.begin(), numbers.end(), static_cast<float>(100 * (rank + 1)));
  return numbers;
}
// Over all ranks.
float sum_at(std::size_t i) {
  float sum = 0;
  for (int rank = 0; rank < kRanks; ++rank) sum += numbers_of(rank, i + 1)[i];
  return sum;
}

TEST(Collectives, AllGather) {
  const HostGroup group(kRanks);
  group.run([](int rank, nearlightComm_t comm) {
    const auto send = numbers_of(rank, kCount);
    std::vector<float> recv(kRanks * kCount, -1), expected;
    for (int other = 0; other < kRanks; ++other) {
      const auto part = numbers_of(other, kCount);
      expected.insert(expected.end(), part.begin(), part.end());
    }
    ASSERT_EQ(nearlightAllGather(send.data(), recv.data(), kCount, nearlightFloat32, comm, nullptr),
              nearlightSuccess)
        << nearlightGetLastError();
    EXPECT_EQ(recv, expected);
    std::vector<float> both(kRanks * kCount, -1);
    float* const own = both.data() + static_cast<std::size_t>(rank) * kCount;
    std::copy(send.begin(), send.end(), own);
    ASSERT_EQ(nearlightAllGather(own, both.data(), kCount, nearlightFloat32, comm, nullptr), nearlightSuccess)
        << nearlightGetLastError();
    EXPECT_EQ(both, expected);
  });
}

TEST(Collectives, ReduceScatter) {
  const HostGroup group(kRanks);
  group.run([](int rank, nearlightComm_t comm) {
    auto send = numbers_of(rank, kRanks * kCount);
    const std::size_t own = static_cast<std::size_t>(rank) * kCount;
    std::vector<float> recv(kCount, -1), expected(kCount);
    for (std::size_t i = 0; i < kCount; ++i) expected[i] = sum_at(own + i);
    ASSERT_EQ(nearlightReduceScatter(send.data(), recv.data(), kCount, nearlightFloat32, nearlightSum, comm,
                                     nullptr),
              nearlightSuccess)
        << nearlightGetLastError();
    EXPECT_EQ(recv, expected);
    ASSERT_EQ(nearlightReduceScatter(send.data(), send.data() + own, kCount, nearlightFloat32, nearlightSum,
                                     comm, nullptr),
              nearlightSuccess)
        << nearlightGetLastError();
    EXPECT_TRUE(std::equal(expected.begin(), expected.end(), send.begin() + static_cast<long>(own)));
  });
}

TEST(Collectives, BroadcastAndReduceFromEveryRoot) {
  const HostGroup group(kRanks);
  group.run([](int rank, nearlightComm_t comm) {
    for (int root = 0; root < kRanks; ++root) {
      const auto send = numbers_of(rank, kCount);
      std::vector<float> recv(kCount, -1);
      // Only the root's input is looked at, and only the root's output.
      ASSERT_EQ(nearlightBroadcast(rank == root ? send.data() : nullptr, recv.data(), kCount,
                                   nearlightFloat32, root, comm, nullptr),
                nearlightSuccess)
          << nearlightGetLastError();
      EXPECT_EQ(recv, numbers_of(root, kCount));
      ASSERT_EQ(nearlightReduce(send.data(), rank == root ? recv.data() : nullptr, kCount, nearlightFloat32,
                                nearlightSum, root, comm, nullptr),
                nearlightSuccess)
          << nearlightGetLastError();
      for (std::size_t i = 0; rank == root && i < kCount; ++i) EXPECT_EQ(recv[i], sum_at(i));
      // In place.
      auto both = numbers_of(rank, kCount);
      ASSERT_EQ(nearlightReduce(both.data(), both.data(), kCount, nearlightFloat32, nearlightSum, root, comm,
                                nullptr),
                nearlightSuccess);
      EXPECT_EQ(both[4], rank == root ? sum_at(4) : send[4]);
      ASSERT_EQ(nearlightBroadcast(both.data(), both.data(), kCount, nearlightFloat32, root, comm, nullptr),
                nearlightSuccess);
      EXPECT_EQ(both[4], sum_at(4));
    }
  });
}

TEST(Collectives, AllToAll) {
  const HostGroup group(kRanks);
  group.run([](int rank, nearlightComm_t comm) {
    const auto send = numbers_of(rank, kRanks * kCount);
    std::vector<float> recv(kRanks * kCount, -1);
    ASSERT_EQ(nearlightAllToAll(send.data(), recv.data(), kCount, nearlightFloat32, comm, nullptr),
              nearlightSuccess)
        << nearlightGetLastError();
    for (int other = 0; other < kRanks; ++other) {
      for (std::size_t i = 0; i < kCount; ++i) {
        EXPECT_EQ(recv[static_cast<std::size_t>(other) * kCount + i],
                  numbers_of(other, kRanks * kCount)[static_cast<std::size_t>(rank) * kCount + i]);
      }
    }
  });
}

// What rank `from` gives to rank `to` in round `round`: rows, columns and whole rounds of nothing among them.
std::size_t uneven_count(int round, int from, int to) {
  if (round % 7 == 6) return 0;
  if (round % 5 == 3 && from == 0) return 0;
  if (round % 5 == 4 && to == 1) return 0;
  const int mixed = (round * 31 + from * 17 + to * 7) % 23;
  return static_cast<std::size_t>(mixed < 5 ? 0 : round % 4 == 0 ? mixed * 41 : mixed);
}
template <class T>
T uneven_value(int round, int from, int to, std::size_t i) {
  return static_cast<T>(round * 5 + from * 31 + to * 11 + static_cast<int>(i % 89));
}

template <class T>
void expect_uneven(int nranks, nearlightDataType_t type) {
  nearlightConfig_t config = patient_config();
  config.slots = 32;  // rounds
  config.chunk_bytes = 256;
  const HostGroup group(nranks, config);
  group.run([&](int rank, nearlightComm_t comm) {
    const auto ranks = static_cast<std::size_t>(nranks);
    for (int round = 0; round < 35; ++round) {
      std::vector<std::size_t> gives(ranks), gets(ranks), from(ranks), to(ranks), all(ranks), of_all(ranks);
      std::size_t sent = 0, received = 0, whole = 0;
      for (std::size_t peer = 0; peer < ranks; ++peer) {
        const int other = static_cast<int>(peer);
        // The last one first, with a hole between two.
        gives[peer] = uneven_count(round, rank, other);
        gets[peer] = uneven_count(round, other, rank);
        from[peer] = sent;
        sent += gives[peer] + 1;
        of_all[peer] = whole;
        all[peer] = uneven_count(round, other, 0);
        whole += all[peer];
      }
      for (std::size_t peer = ranks; peer-- > 0;) {
        to[peer] = received;
        received += gets[peer] + 1;
      }
      std::vector<T> send(sent), recv(received, T{77});
      for (std::size_t peer = 0; peer < ranks; ++peer) {
        for (std::size_t i = 0; i < gives[peer]; ++i)
          send[from[peer] + i] = uneven_value<T>(round, rank, static_cast<int>(peer), i);
      }
      ASSERT_EQ(nearlightAllToAllV(send.data(), gives.data(), from.data(), recv.data(), gets.data(),
                                   to.data(), type, comm, nullptr),
                nearlightSuccess)
          << nearlightGetLastError();
      for (std::size_t peer = 0; peer < ranks; ++peer) {
        for (std::size_t i = 0; i < gets[peer]; ++i) {
          ASSERT_EQ(recv[to[peer] + i], uneven_value<T>(round, static_cast<int>(peer), rank, i))
              << "round " << round << ", from " << peer << ", element " << i;
        }
        ASSERT_EQ(recv[to[peer] + gets[peer]], T{77}) << "round " << round;
      }
      // Each rank's part of what rank 0 would get.
      std::vector<T> gathered(whole + 1, T{77}), mine(all[static_cast<std::size_t>(rank)] + 1);
      for (std::size_t i = 0; i < mine.size(); ++i) mine[i] = uneven_value<T>(round, rank, 0, i);
      ASSERT_EQ(nearlightAllGatherV(mine.data(), gathered.data(), all.data(), nullptr, type, comm, nullptr),
                nearlightSuccess)
          << nearlightGetLastError();
      for (std::size_t peer = 0; peer < ranks; ++peer) {
        for (std::size_t i = 0; i < all[peer]; ++i)
          ASSERT_EQ(gathered[of_all[peer] + i], uneven_value<T>(round, static_cast<int>(peer), 0, i));
      }
      ASSERT_EQ(gathered[whole], T{77});
      // The sum of it over all ranks, each its part.
      std::vector<T> part(all[static_cast<std::size_t>(rank)] + 1, T{77});
      ASSERT_EQ(nearlightReduceScatterV(gathered.data(), part.data(), all.data(), type, nearlightMax, comm,
                                        nullptr),
                nearlightSuccess)
          << nearlightGetLastError();
      for (std::size_t i = 0; i + 1 < part.size(); ++i)
        ASSERT_EQ(part[i], gathered[of_all[static_cast<std::size_t>(rank)] + i]);
      ASSERT_EQ(part.back(), T{77});
    }
  });
}

class UnevenCollectives : public testing::TestWithParam<int> {};
TEST_P(UnevenCollectives, MoveAndReduceEachPart) {
  expect_uneven<float>(GetParam(), nearlightFloat32);
  expect_uneven<std::uint8_t>(GetParam(), nearlightUint8);
}
INSTANTIATE_TEST_SUITE_P(Ranks, UnevenCollectives, testing::Range(1, 9));

TEST(Collectives, UnevenArgumentsThatCannotBe) {
  const HostGroup group(2);
  float send[16] = {}, recv[16] = {};
  const std::size_t two[] = {2, 2}, places[] = {0, 2}, across[] = {0, 1}, other[] = {2, 1};
  const auto type = nearlightFloat32;
  const auto bad = nearlightInvalidArgument;
  const nearlightComm_t comm = group[1];
  expect_error(nearlightAllGatherV(send, recv, nullptr, places, type, comm, nullptr), bad,
               {"recv_counts is null"});
  expect_error(nearlightAllGatherV(send, recv, two, across, type, comm, nullptr), bad,
               {"ranks 0 and 1", "overlap"});
  expect_error(nearlightAllGatherV(nullptr, recv, two, places, type, comm, nullptr), bad, {"send is null"});
  const std::size_t huge[] = {SIZE_MAX / 2, 1};
  expect_error(nearlightReduceScatterV(send, recv, huge, type, nearlightSum, comm, nullptr), bad,
               {"recv_counts[0]"});
  expect_error(nearlightAllToAllV(send, two, nullptr, recv, two, places, type, comm, nullptr), bad,
               {"send_places is null"});
  expect_error(nearlightAllToAllV(send, two, places, recv, two, nullptr, type, comm, nullptr), bad,
               {"recv_places is null"});
  expect_error(nearlightAllToAllV(send, two, places, recv, other, places, type, comm, nullptr), bad,
               {"send_counts[1] is 2", "recv_counts[1] is 1"});
  expect_error(nearlightAllToAllV(send, two, places, send, two, places, type, comm, nullptr), bad,
               {"overlap"});
  group.run([&](int rank, nearlightComm_t one) {
    const float value[2] = {static_cast<float>(rank), 5};
    float out[4] = {};
    EXPECT_EQ(nearlightAllGatherV(value, out, two, nullptr, type, one, nullptr), nearlightSuccess)
        << nearlightGetLastError();
    EXPECT_EQ(out[2], 1.0f);
  });
}

// Calls that may be made again look at their buffers before their arguments are checked.
TEST(Collectives, MissingCountsAreToldWhereCallsAreMadeAgain) {
  ::setenv("NEARLIGHT_RETRIES", "1", 1);
  const HostGroup group(2);
  ::unsetenv("NEARLIGHT_RETRIES");
  float send[4] = {}, recv[4] = {};
  const std::size_t two[] = {2, 2}, places[] = {0, 2};
  const auto type = nearlightFloat32;
  expect_error(nearlightAllGatherV(send, recv, nullptr, nullptr, type, group[0], nullptr),
               nearlightInvalidArgument, {"recv_counts is null"});
  expect_error(nearlightAllToAllV(send, nullptr, places, recv, two, places, type, group[0], nullptr),
               nearlightInvalidArgument, {"send_counts is null"});
}

TEST(Collectives, OfOneRankAreCopies) {
  const HostGroup group(1);
  const auto send = numbers_of(0, kCount);
  std::vector<float> recv(kCount);
  const auto expect_copied = [&](nearlightResult_t result) {
    EXPECT_EQ(result, nearlightSuccess) << nearlightGetLastError();
    EXPECT_EQ(std::exchange(recv, std::vector<float>(kCount)), send);
  };
  const auto type = nearlightFloat32;
  expect_copied(nearlightAllGather(send.data(), recv.data(), kCount, type, group[0], nullptr));
  expect_copied(
      nearlightReduceScatter(send.data(), recv.data(), kCount, type, nearlightSum, group[0], nullptr));
  expect_copied(nearlightBroadcast(send.data(), recv.data(), kCount, type, 0, group[0], nullptr));
  expect_copied(nearlightReduce(send.data(), recv.data(), kCount, type, nearlightAvg, 0, group[0], nullptr));
  expect_copied(nearlightAllToAll(send.data(), recv.data(), kCount, type, group[0], nullptr));
  const float two = 2.0f;
  nearlightRedOp_t twice = nearlightSum;
  ASSERT_EQ(nearlightRedOpCreatePreMulSum(&twice, &two, type, nearlightScalarHostImmediate, group[0]),
            nearlightSuccess);
  ASSERT_EQ(nearlightReduceScatter(send.data(), recv.data(), kCount, type, twice, group[0], nullptr),
            nearlightSuccess);
  EXPECT_EQ(recv[0], 200.0f);
}

// Nothing was written, nothing waits, and the next call goes through.
TEST(Collectives, ArgumentsThatCannotBe) {
  const HostGroup group(2);
  float buffer[64] = {};
  const auto type = nearlightFloat32;
  const nearlightComm_t comm = group[1];
  const auto bad = nearlightInvalidArgument;
  expect_error(nearlightAllGather(nullptr, buffer, 4, type, comm, nullptr), bad,
               {"AllGather", "send is null"});
  expect_error(nearlightAllGather(buffer, nullptr, 4, type, comm, nullptr), bad, {"recv is null"});
  // In place for rank 1 is recv + 4.
  expect_error(nearlightAllGather(buffer, buffer, 4, type, comm, nullptr), bad,
               {"overlap", "rank 1", "recv + rank * count"});
  expect_error(nearlightReduceScatter(buffer, buffer, 4, type, nearlightSum, comm, nullptr), bad,
               {"overlap", "recv - rank * count"});
  expect_error(nearlightAllToAll(buffer, buffer, 4, type, comm, nullptr), bad, {"no all_to_all in place"});
  expect_error(nearlightBroadcast(buffer, buffer + 8, 4, type, 2, comm, nullptr), bad,
               {"root: 2 is not between 0 and 1"});
  expect_error(nearlightReduce(buffer, buffer + 8, 4, type, nearlightSum, -1, comm, nullptr), bad,
               {"root: -1"});
  expect_error(nearlightBroadcast(buffer, buffer + 2, 4, type, 1, comm, nullptr), bad, {"overlap"});
  expect_error(
      nearlightReduce(buffer, buffer + 8, 4, type, static_cast<nearlightRedOp_t>(7), 0, comm, nullptr), bad,
      {"op"});
  expect_error(nearlightAllToAll(buffer, buffer + 8, 4, static_cast<nearlightDataType_t>(77), comm, nullptr),
               bad, {"type"});
  expect_error(nearlightAllGather(buffer, buffer + 8, SIZE_MAX / 8, type, comm, nullptr), bad, {"count"});
  expect_error(nearlightAllGather(reinterpret_cast<char*>(buffer) + 1, buffer + 8, 4, type, comm, nullptr),
               bad, {"send", "aligned"});
  expect_error(nearlightAllGather(buffer, buffer + 8, 4, type, nullptr, nullptr), bad, {"comm"});
  expect_error(
      nearlightAllGather(buffer, buffer + 8, 4, type, comm, reinterpret_cast<struct CUstream_st*>(buffer)),
      bad, {"stream"});
  // A root out of range is found with nothing to send, too.
  expect_error(nearlightBroadcast(nullptr, nullptr, 0, type, 5, comm, nullptr), bad, {"root"});
  EXPECT_EQ(nearlightAllGather(nullptr, nullptr, 0, type, comm, nullptr), nearlightSuccess);
  group.run([](int rank, nearlightComm_t one) {
    float value = rank == 0 ? 7.0f : 0.0f;
    EXPECT_EQ(nearlightBroadcast(&value, &value, 1, nearlightFloat32, 0, one, nullptr), nearlightSuccess)
        << nearlightGetLastError();
    EXPECT_EQ(value, 7.0f);
  });
}

TEST(Collectives, CheckModeComparesCollectiveCountAndRoot) {
  nearlightConfig_t config = patient_config();
  config.check = 1;
  const HostGroup group(2, config);
  group.run([](int rank, nearlightComm_t comm) {
    float send[8] = {1}, recv[16] = {9};
    const auto broadcast = [&](std::size_t count, int root) {
      return nearlightBroadcast(send, recv, count, nearlightFloat32, root, comm, nullptr);
    };
    expect_error(broadcast(4, rank), nearlightInvalidUsage, {"root", "0 on rank 0", "1 on rank 1"});
    expect_error(broadcast(rank == 0 ? 4 : 3, 0), nearlightInvalidUsage, {"count", "4 on rank 0"});
    expect_error(
        rank == 0 ? broadcast(4, 0) : nearlightAllGather(send, recv, 4, nearlightFloat32, comm, nullptr),
        nearlightInvalidUsage, {"collective", "broadcast on rank 0", "all_gather on rank 1"});
    EXPECT_EQ(recv[0], 9.0f);
    EXPECT_EQ(broadcast(4, 1), nearlightSuccess) << nearlightGetLastError();
  });
}

TEST(Collectives, AreExplainedAndCounted) {
  const HostGroup group(2);
  nearlightRoute_t route = NEARLIGHT_ROUTE_INITIALIZER;
  for (const auto collective :
       {nearlightCollectiveAllGather, nearlightCollectiveReduceScatter, nearlightCollectiveBroadcast,
        nearlightCollectiveReduce, nearlightCollectiveAllToAll}) {
    ASSERT_EQ(nearlightExplain(group[0], collective, 1, nearlightFloat32, nearlightSum, &route),
              nearlightSuccess)
        << nearlightGetLastError();
    EXPECT_STREQ(route.algorithm, "one_shot");
    EXPECT_STREQ(route.protocol, "ll");
    ASSERT_EQ(nearlightExplain(group[0], collective, 100'000, nearlightFloat32, nearlightSum, &route),
              nearlightSuccess);
    EXPECT_STREQ(route.protocol, "simple");
    EXPECT_THAT(route.reason, testing::HasSubstr("CPU"));
  }
  expect_error(nearlightExplain(group[0], static_cast<nearlightCollective_t>(2), 1, nearlightFloat32,
                                nearlightSum, &route),
               nearlightInvalidArgument, {"collective"});
  group.run([](int, nearlightComm_t comm) {
    float send[4] = {}, recv[4] = {};
    const auto type = nearlightFloat32;
    EXPECT_EQ(nearlightAllGather(send, recv, 2, type, comm, nullptr), nearlightSuccess);
    EXPECT_EQ(nearlightReduceScatter(send, recv, 2, type, nearlightMax, comm, nullptr), nearlightSuccess);
    EXPECT_EQ(nearlightBroadcast(send, recv, 2, type, 0, comm, nullptr), nearlightSuccess);
    EXPECT_EQ(nearlightReduce(send, recv, 2, type, nearlightMin, 1, comm, nullptr), nearlightSuccess);
    EXPECT_EQ(nearlightAllToAll(send, recv, 2, type, comm, nullptr), nearlightSuccess);
    nearlightCounters_t counters = NEARLIGHT_COUNTERS_INITIALIZER;
    ASSERT_EQ(nearlightCommGetCounters(comm, &counters), nearlightSuccess);
    EXPECT_EQ(counters.all_gathers, 1u);
    EXPECT_EQ(counters.reduce_scatters, 1u);
    EXPECT_EQ(counters.broadcasts, 1u);
    EXPECT_EQ(counters.reduces, 1u);
    EXPECT_EQ(counters.all_to_alls, 1u);
    EXPECT_EQ(counters.all_reduces, 0u);
    EXPECT_EQ(counters.bytes, 40u);
  });
}

TEST(Collectives, InCpp) {
  auto comms = Communicator::host_group(2);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      Communicator& comm = comms[static_cast<std::size_t>(rank)];
      const float send[2] = {static_cast<float>(rank), 10.0f};
      float recv[4] = {};
      comm.all_gather(send, recv, 2, f32);
      EXPECT_EQ(recv[2], 1.0f);
      comm.reduce_scatter(send, recv, 1, f32, sum);
      EXPECT_EQ(recv[0], rank == 0 ? 1.0f : 20.0f);
      comm.broadcast(send, recv, 2, f32, 1);
      EXPECT_EQ(recv[0], 1.0f);
      comm.reduce(send, recv, 2, f32, comm.premul_sum(f32, &send[1]), 0);
      EXPECT_EQ(recv[1], rank == 0 ? 200.0f : 10.0f);
      comm.all_to_all(send, recv, 1, f32);
      EXPECT_EQ(recv[1], rank == 0 ? 1.0f : 10.0f);
      EXPECT_EQ(comm.counters().all_to_alls, 1u);
      EXPECT_EQ(comm.explain(Collective::all_to_all, 1, f32, sum).algorithm, "one_shot");
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THROW(comms[0].broadcast(nullptr, nullptr, 0, f32, 9), Error);
}

}  // namespace
}  // namespace nearlight::test
