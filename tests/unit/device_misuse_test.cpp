// What goes wrong with a channel ends as a record that says what and with whom, in bounded time.
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <string>

#include "tests/unit/device_ranks.hpp"

namespace nearlight::test {
namespace {

using device::LL;
using device::Misuse;
using device::Simple;
using device::host::Channel;
using device::host::Thread;

using Checked = Channel<LL, Thread, true>;
constexpr device::Shape kShape{.nranks = 3, .channels = 2, .slots = 4, .cells = 4, .checks = 1};

// What the record of rank 1 says after it alone has run `body`.
device::Fault fault_of(const std::function<void(const device::Memory&)>& body,
                       std::uint64_t timeout_ns = 60'000'000'000) {
  LocalRanks ranks(kShape, timeout_ns);
  body(ranks.memory(1));
  EXPECT_NE(ranks.fault(1), nullptr) << "nothing was recorded";
  // Whatever comes after it neither waits nor sends.
  std::uint32_t value = 7;
  Checked later(ranks.memory(1), 0);
  if (ranks.fault(1) != nullptr && later.failed()) {
    EXPECT_FALSE(later.send(0, 0, value));
    EXPECT_FALSE(later.recv(0, 0, value));
    EXPECT_EQ(value, 7u);
  }
  return ranks.fault(1) != nullptr ? *ranks.fault(1) : device::Fault{};
}
void expect_misuse(const device::Fault& fault, Misuse what, int peer, std::uint32_t slot) {
  EXPECT_EQ(fault.kind, static_cast<std::uint32_t>(protocol::kMisuse));
  EXPECT_EQ(static_cast<Misuse>(fault.reserved), what)
      << protocol::in_words(static_cast<Misuse>(fault.reserved));
  EXPECT_EQ(fault.rank, 1);
  EXPECT_EQ(fault.peer, peer);
  EXPECT_EQ(fault.slot, slot);
}

TEST(DeviceMisuse, NoSuchSlot) {
  expect_misuse(fault_of([](const device::Memory& memory) {
                  Checked ch(memory);
                  EXPECT_FALSE(ch.send(2, 4, 1));
                  EXPECT_TRUE(ch.failed());
                }),
                Misuse::no_such_slot, 2, 4);
  expect_misuse(fault_of([](const device::Memory& memory) {
                  int values[2];
                  Checked ch(memory);
                  EXPECT_FALSE(ch.recv_unrolled(0, 3, 1, values));
                }),
                Misuse::no_such_slot, 0, 4);
  expect_misuse(fault_of([](const device::Memory& memory) {
                  Channel<Simple, Thread, true> ch(memory);
                  EXPECT_FALSE(ch.put(0, 9, {}));
                }),
                Misuse::no_such_slot, 0, 9);
}

TEST(DeviceMisuse, NoSuchPeer) {
  for (const int peer : {-1, 1, 3}) {
    expect_misuse(fault_of([&](const device::Memory& memory) {
                    Checked ch(memory);
                    EXPECT_FALSE(ch.send(peer, 0, 1));
                  }),
                  Misuse::no_such_peer, peer, 0);
  }
  // A rank, but none that this one said it would hear from.
  expect_misuse(fault_of([](device::Memory memory) {
                  memory.peers = 1u << 0;
                  Checked ch(memory);
                  EXPECT_FALSE(ch.send(2, 1, 1));
                }),
                Misuse::no_such_peer, 2, 1);
}

TEST(DeviceMisuse, NoSuchChannelIsFoundWithoutChecksToo) {
  expect_misuse(fault_of([](const device::Memory& memory) {
                  Channel<LL, Thread, false> ch(memory, 2);
                  EXPECT_FALSE(ch.send(0, 0, 1));
                }),
                Misuse::no_such_channel, -1, 2);
}

TEST(DeviceMisuse, AKernelForAnotherNumberOfRanks) {
  expect_misuse(fault_of([](const device::Memory& memory) {
                  Channel<LL, Thread, false, 2> ch(memory);
                  EXPECT_TRUE(ch.failed());
                  EXPECT_FALSE(ch.bcast(0, 1));
                  EXPECT_FALSE(ch.bcast(ch.hold(0), 1));
                  int value = 7;
                  EXPECT_FALSE(ch.recv_reduce(ch.hold(0), 1, std::plus<int>{}, value));
                  EXPECT_EQ(value, 7);
                }),
                Misuse::other_ranks, -1, 2);
}

// Of more ranks than there are, with checks: nothing is written past the memory of those that there are.
TEST(DeviceMisuse, AKernelForMoreRanksClearsNothing) {
  LocalRanks ranks(kShape);
  const device::Memory memory = ranks.memory(1);
  set_epoch(memory, 1, 7);  // behind channel 0's own part
  set_epoch(memory, 0, 0xfffffffdu);
  {
    Channel<LL, Thread, true, 8> ch(memory);
    EXPECT_FALSE(ch.advance_epoch());
    EXPECT_FALSE(ch.advance_epoch());
  }
  EXPECT_EQ(epoch_of(memory, 1), 7u);
  ASSERT_NE(ranks.fault(1), nullptr);
  expect_misuse(*ranks.fault(1), Misuse::other_ranks, -1, 8);
}

TEST(DeviceMisuse, HeldSlots) {
  expect_misuse(fault_of([](const device::Memory& memory) {
                  Checked ch(memory);
                  EXPECT_FALSE(ch.bcast(ch.hold(4), 1));
                }),
                Misuse::no_such_slot, 0, 4);
  // They are for channels of which all ranks are peers.
  expect_misuse(fault_of([](device::Memory memory) {
                  memory.peers = 1u << 0;
                  Checked ch(memory);
                  EXPECT_FALSE(ch.bcast(ch.hold(1), 1));
                }),
                Misuse::no_such_peer, 2, 1);
  expect_misuse(fault_of([](const device::Memory& memory) {
                  Checked ch(memory);
                  EXPECT_TRUE(ch.bcast(ch.hold(3), 1));
                  EXPECT_FALSE(ch.bcast(ch.hold(3), 2));
                }),
                Misuse::two_writers, 0, 3);
}

// [E1]: the epoch is ended with one peer not heard; the peer is named.
TEST(DeviceMisuse, AdvanceWithoutAReceiveFromEachPeer) {
  LocalRanks ranks(kShape);
  run_ranks(ranks, 3, 1, [](const device::Memory& memory, Lane lane) {
    Channel<LL, Lane, true> ch(memory, 0, lane);
    EXPECT_TRUE(ch.bcast(0, 5));
    int value = 0;
    for (int source = 0; source < 3; ++source) {
      if (source == ch.rank() || (ch.rank() == 1 && source == 2)) continue;
      EXPECT_TRUE(ch.recv(source, 0, value));
    }
    EXPECT_EQ(ch.advance_epoch(), ch.rank() != 1);
  });
  ASSERT_NE(ranks.fault(1), nullptr);
  expect_misuse(*ranks.fault(1), Misuse::not_heard, 2, 0);
  EXPECT_EQ(ranks.fault(1)->epoch, 1u);
  EXPECT_EQ(ranks.fault(0), nullptr);
  EXPECT_EQ(ranks.fault(2), nullptr);
}

// The end of a session ends the epoch as well.
TEST(DeviceMisuse, CloseWithoutAReceiveFromEachPeer) {
  expect_misuse(fault_of([](const device::Memory& memory) {
                  Checked ch(memory);
                  EXPECT_TRUE(ch.send(0, 0, 1));
                }),
                Misuse::not_heard, 0, 0);
}

TEST(DeviceMisuse, TwoWritersOfASlot) {
  expect_misuse(fault_of([](const device::Memory& memory) {
                  Checked ch(memory);
                  EXPECT_TRUE(ch.send(0, 3, 1));
                  EXPECT_TRUE(ch.send(2, 3, 1));  // another peer's slot
                  EXPECT_FALSE(ch.send(0, 3, 2));
                }),
                Misuse::two_writers, 0, 3);
  // Two lanes of a group.
  LocalRanks ranks(kShape);
  run_ranks(ranks, 1, 2, [](const device::Memory& memory, Lane lane) {
    Channel<LL, Lane, true> ch(memory, 0, lane);
    (void)ch.send(2, 1, lane.lane);
  });
  ASSERT_NE(ranks.fault(0), nullptr);
  EXPECT_EQ(ranks.fault(0)->reserved, static_cast<std::uint32_t>(Misuse::two_writers));
}

TEST(DeviceMisuse, BarrierAmongSignals) {
  expect_misuse(fault_of([](const device::Memory& memory) {
                  Channel<Simple, Thread, true> ch(memory);
                  EXPECT_TRUE(ch.signal(0));
                  EXPECT_FALSE(ch.barrier());
                }),
                Misuse::barrier_in_use, -1, 0);
  expect_misuse(fault_of([](device::Memory memory) {
                  memory.peers = 1u << 0;
                  Channel<LL, Thread, false> ch(memory);
                  EXPECT_FALSE(ch.barrier());
                }),
                Misuse::barrier_in_use, -1, 0);
}

// Nobody else comes: every wait ends in time and names whom it waited for.
TEST(DeviceTimeout, NamesThePeer) {
  constexpr std::uint64_t kLimit = 20'000'000;
  const auto expect_timeout = [](const device::Fault& fault, int peer, std::uint32_t slot) {
    EXPECT_EQ(fault.kind, static_cast<std::uint32_t>(protocol::Wait::timeout));
    EXPECT_EQ(fault.peer, peer);
    EXPECT_EQ(fault.slot, slot);
    EXPECT_EQ(fault.expected, 1u);
    EXPECT_EQ(fault.seen, 0u);
  };
  expect_timeout(fault_of(
                     [](const device::Memory& memory) {
                       int value = 42;
                       Channel<LL> ch(memory);
                       EXPECT_FALSE(ch.recv(2, 3, value));
                       EXPECT_EQ(value, 42);
                     },
                     kLimit),
                 2, 3);
  expect_timeout(fault_of(
                     [](const device::Memory& memory) {
                       float sum = 42;
                       Channel<LL> ch(memory);
                       EXPECT_FALSE(ch.recv_reduce(1, 1.0f, std::plus<float>{}, sum));
                       EXPECT_EQ(sum, 42);
                     },
                     kLimit),
                 0, 1);
  expect_timeout(fault_of(
                     [](const device::Memory& memory) {
                       Channel<Simple> ch(memory);
                       EXPECT_FALSE(ch.wait_signal(2));
                       EXPECT_EQ(ch.get(2, 0).pack[0], 0u);
                     },
                     kLimit),
                 2, 0);
  expect_timeout(fault_of(
                     [](const device::Memory& memory) {
                       Channel<LL> ch(memory);
                       EXPECT_FALSE(ch.barrier());
                     },
                     kLimit),
                 0, 0);
}

// The time limit of one lane ends the others' waits, and the group ends.
TEST(DeviceTimeout, OneLaneEndsTheGroup) {
  LocalRanks ranks({.nranks = 2, .slots = 3, .cells = 1}, 20'000'000);
  run_ranks(ranks, 1, 3, [](const device::Memory& memory, Lane lane) {
    Channel<Simple, Lane> ch(memory, 0, lane);
    EXPECT_FALSE(ch.wait_signal(1));
    EXPECT_FALSE(ch.advance_epoch());
    EXPECT_FALSE(ch.barrier());
    EXPECT_FALSE(ch.signal(1));
  });
  ASSERT_NE(ranks.fault(0), nullptr);
  EXPECT_EQ(ranks.fault(0)->peer, 1);
}

TEST(DeviceTimeout, AbortEndsAWait) {
  LocalRanks ranks({.nranks = 2, .slots = 1}, 600'000'000'000);
  std::thread waiting([&] {
    int value = 0;
    Channel<LL> ch(ranks.memory(0));
    EXPECT_FALSE(ch.recv(1, 0, value));
  });
  ranks.abort(0);
  waiting.join();
  ASSERT_NE(ranks.fault(0), nullptr);
  EXPECT_EQ(ranks.fault(0)->kind, static_cast<std::uint32_t>(protocol::Wait::aborted));
}

}  // namespace
}  // namespace nearlight::test
