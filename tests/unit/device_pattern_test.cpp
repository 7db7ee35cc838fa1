// Patterns in which not every rank hears from every other: neighbours, and one-way messages with an answer.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>

#include "tests/unit/device_ranks.hpp"

namespace nearlight::test {
namespace {

using device::LL;
using device::Sentinel;
using device::Simple;
using device::host::Channel;

// A line of ranks, each a peer of the one before and the one after.
std::uint32_t neighbours(int rank, int nranks) {
  return (rank > 0 ? 1u << (rank - 1) : 0u) | (rank + 1 < nranks ? 1u << (rank + 1) : 0u);
}

template <class Protocol>
void neighbours_exchange(int nranks) {
  LocalRanks ranks({.nranks = nranks, .slots = 2, .packets = 2, .checks = 1});
  std::atomic<int> wrong{0};
  run_ranks(
      ranks, nranks, 1,
      [&](const device::Memory& memory, Lane lane) {
        for (int session = 0; session < 40; ++session) {
          Channel<Protocol, Lane, true> ch(memory, 0, lane);
          for (int epoch = 0; epoch < 7; ++epoch) {
            const int mark = session * 10 + epoch;
            wrong += !ch.bcast(1, ch.rank() * 1000 + mark);
            for (int source = 0; source < ch.nranks(); ++source) {
              int got = 0;
              if (!ch.is_peer(source)) continue;
              wrong += !ch.recv(source, 1, got) || got != source * 1000 + mark;
            }
            wrong += !ch.advance_epoch();
          }
        }
      },
      [&](int rank) { return neighbours(rank, nranks); });
  EXPECT_EQ(wrong, 0);
}
TEST(DevicePattern, NeighboursOnly) {
  neighbours_exchange<LL>(4);
  neighbours_exchange<Sentinel>(4);
}

// A producer that is up to a lap ahead of a consumer, whose message of an epoch says that it has read the one
// before. Either of them is slow at times.
TEST(DevicePattern, ManyMessagesThroughASlotRing) {
  constexpr std::uint32_t kRing = 16, kLaps = 200;
  LocalRanks ranks({.nranks = 2, .slots = kRing, .checks = 1});
  std::atomic<int> wrong{0};
  run_ranks(ranks, 2, 1, [&](const device::Memory& memory, Lane lane) {
    Channel<LL, Lane, true> ch(memory, 0, lane);
    for (std::uint32_t lap = 0; lap < kLaps; ++lap) {
      if (lap % 32 == static_cast<std::uint32_t>(ch.rank()))
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      if (ch.rank() == 0) {
        for (std::uint32_t slot = 0; slot < kRing; ++slot) wrong += !ch.send(1, slot, lap * kRing + slot);
        char credit;
        wrong += !ch.recv(1, 0, credit);
      } else {
        wrong += !ch.send(0, 0, 'c');
        for (std::uint32_t slot = 0; slot < kRing; ++slot) {
          std::uint32_t got = 0;
          wrong += !ch.recv(0, slot, got) || got != lap * kRing + slot;
        }
      }
      wrong += !ch.advance_epoch();
    }
  });
  EXPECT_EQ(wrong, 0);
}

// The chunk that is waited for is late, the other one is there: a wait for the first is not ended by the
// second, neither by its slot nor by the signal of another channel.
TEST(DevicePattern, ALaterChunkDoesNotStandForAnEarlierOne) {
  LocalRanks ranks({.nranks = 2, .channels = 2, .slots = 2, .cells = 1});
  std::atomic<bool> first_sent{false}, second_seen{false};
  const auto wait_for = [](const std::atomic<bool>& what) {
    for (int i = 0; i < 5000 && !what; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_TRUE(what);
  };
  run_ranks(ranks, 2, 1, [&](const device::Memory& memory, Lane lane) {
    Channel<LL, Lane> ch(memory, 0, lane);
    int got = 0;
    if (ch.rank() == 0) {
      EXPECT_TRUE(ch.send(1, 1, 11));
      wait_for(second_seen);
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      first_sent = true;
      EXPECT_TRUE(ch.send(1, 0, 10));
      EXPECT_TRUE(ch.recv(1, 0, got));
    } else {
      EXPECT_TRUE(ch.recv(0, 1, got));
      EXPECT_EQ(got, 11);
      second_seen = true;
      EXPECT_TRUE(ch.recv(0, 0, got));
      EXPECT_EQ(got, 10);
      EXPECT_TRUE(first_sent);
      EXPECT_TRUE(ch.send(0, 0, 1));
    }
  });
  first_sent = second_seen = false;
  run_ranks(ranks, 2, 1, [&](const device::Memory& memory, Lane lane) {
    Channel<Simple, Lane> first(memory, 0, lane), second(memory, 1, lane);
    const int peer = 1 - first.rank();
    if (first.rank() == 0) {
      EXPECT_TRUE(second.put(peer, 0, {{21, 0}}) && second.signal(peer));
      wait_for(second_seen);
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      first_sent = true;
      EXPECT_TRUE(first.put(peer, 0, {{20, 0}}) && first.signal(peer));
      EXPECT_TRUE(first.wait_signal(peer) && second.wait_signal(peer));
    } else {
      EXPECT_TRUE(second.wait_signal(peer));
      EXPECT_EQ(second.get(peer, 0).pack[0], 21u);
      second_seen = true;
      EXPECT_TRUE(first.wait_signal(peer));
      EXPECT_EQ(first.get(peer, 0).pack[0], 20u);
      EXPECT_TRUE(first_sent);
      EXPECT_TRUE(first.signal(peer) && second.signal(peer));
    }
  });
}

// Both send first and receive then, whatever the size: sending never waits.
TEST(DevicePattern, BothSendThenReceive) {
  for (const std::uint32_t count : {1u, 4096u}) {
    LocalRanks ranks({.nranks = 2, .slots = count});
    std::atomic<int> wrong{0};
    run_ranks(ranks, 2, 1, [&](const device::Memory& memory, Lane lane) {
      Channel<LL, Lane> ch(memory, 0, lane);
      const int peer = 1 - ch.rank();
      for (std::uint32_t slot = 0; slot < count; ++slot) wrong += !ch.send(peer, slot, slot);
      for (std::uint32_t slot = 0; slot < count; ++slot) {
        std::uint32_t got = 0;
        wrong += !ch.recv(peer, slot, got) || got != slot;
      }
    });
    EXPECT_EQ(wrong, 0) << count;
  }
}

// A message that nobody wants is dropped in its epoch; the slot then tells the next one.
TEST(DevicePattern, AMessageThatIsDropped) {
  LocalRanks ranks({.nranks = 2, .packets = 1});
  run_ranks(ranks, 2, 1, [&](const device::Memory& memory, Lane lane) {
    Channel<Sentinel, Lane> ch(memory, 0, lane);
    const int peer = 1 - ch.rank();
    for (int epoch = 0; epoch < 6; ++epoch) {
      int got = -1;
      EXPECT_TRUE(ch.bcast(0, epoch));
      if (epoch % 3 == 0) {
        EXPECT_TRUE(ch.reset(peer, 0));
      } else {
        EXPECT_TRUE(ch.recv(peer, 0, got));
        EXPECT_EQ(got, epoch);
      }
      EXPECT_TRUE(ch.advance_epoch());
    }
  });
}

}  // namespace
}  // namespace nearlight::test
