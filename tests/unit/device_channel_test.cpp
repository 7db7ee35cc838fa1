// The calls of a channel, by threads: what arrives, in which order it is reduced, across the wrap of the
// epoch, from session to session.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <tuple>

#include "tests/unit/device_ranks.hpp"

namespace nearlight::test {
namespace {

using device::LL;
using device::Sentinel;
using device::Simple;
using device::host::Channel;

// (ranks, lanes a rank, checks)
class DeviceChannel : public testing::TestWithParam<std::tuple<int, int, bool>> {
 protected:
  int nranks() const { return std::get<0>(GetParam()); }
  int lanes() const { return std::get<1>(GetParam()); }
  bool checks() const { return std::get<2>(GetParam()); }
  int epochs() const { return 1200 / (nranks() * lanes()); }
  device::Shape shape() const {
    return {.nranks = nranks(), .channels = 2, .slots = 8, .packets = 8, .cells = 8, .checks = checks()};
  }
  void expect_no_fault(const LocalRanks& ranks) const {
    for (int rank = 0; rank < nranks(); ++rank) EXPECT_EQ(ranks.fault(rank), nullptr) << "rank " << rank;
  }
};

// Not commutative, so that the order shows.
struct Chain {
  std::uint32_t operator()(std::uint32_t a, std::uint32_t b) const { return a * 31 + b; }
};
std::uint32_t value_of(int rank, int epoch, std::uint32_t slot) {
  return static_cast<std::uint32_t>(rank + 1) * 100'003 + static_cast<std::uint32_t>(epoch) * 17 + slot;
}
std::uint32_t chain_of(int nranks, int epoch, std::uint32_t slot) {
  std::uint32_t chain = value_of(0, epoch, slot);
  for (int rank = 1; rank < nranks; ++rank) chain = Chain{}(chain, value_of(rank, epoch, slot));
  return chain;
}

// Every rank to every rank, `epochs` times, each lane a slot; the session is closed and opened now and then,
// after an advance (an epoch that nobody used) or before it.
template <class Protocol, bool kChecks>
void all_to_all(const device::Memory& memory, Lane lane, int epochs, std::atomic<int>& wrong) {
  const auto slot = static_cast<std::uint32_t>(lane.thread_rank());
  for (int epoch = 0; epoch < epochs;) {
    Channel<Protocol, Lane, kChecks> ch(memory, 1, lane);
    for (int in_session = 1;; ++in_session) {
      std::uint32_t result = 0;
      const std::uint32_t own = value_of(ch.rank(), epoch, slot);
      if (!ch.bcast(slot, own) ||
          !(epoch % 2 == 0 ? ch.recv_reduce(slot, own, Chain{}, result)
                           : ch.template recv_reduce<5, true>(slot, own, Chain{}, result)) ||
          result != chain_of(ch.nranks(), epoch, slot))
        ++wrong;
      ++epoch;
      const bool last = epoch == epochs || in_session == 5;
      if (last && epoch % 2 == 0) break;
      ch.advance_epoch();
      if (last) break;
    }
  }
}
template <class Protocol>
void all_to_all(bool checks, const device::Memory& memory, Lane lane, int epochs, std::atomic<int>& wrong) {
  checks ? all_to_all<Protocol, true>(memory, lane, epochs, wrong)
         : all_to_all<Protocol, false>(memory, lane, epochs, wrong);
}

TEST_P(DeviceChannel, BcastAndRecvReduceInRankOrder) {
  for (const bool sentinel : {false, true}) {
    LocalRanks ranks(shape());
    std::atomic<int> wrong{0};
    run_ranks(ranks, nranks(), lanes(), [&](const device::Memory& memory, Lane lane) {
      sentinel ? all_to_all<Sentinel>(checks(), memory, lane, epochs(), wrong)
               : all_to_all<LL>(checks(), memory, lane, epochs(), wrong);
    });
    EXPECT_EQ(wrong, 0) << (sentinel ? "Sentinel" : "LL");
    expect_no_fault(ranks);
    if (nranks() == 1) continue;  // which sends nothing
    // No epoch was counted that nobody used.
    for (int rank = 0; rank < nranks(); ++rank)
      EXPECT_EQ(epoch_of(ranks.memory(rank), 1), static_cast<std::uint32_t>(epochs()));
  }
}

// A slot that is held, of a channel that knows the number of ranks or does not.
template <bool kChecks, int kRanks>
void by_held_slots(const device::Memory& memory, Lane lane, int epochs, std::atomic<int>& wrong) {
  Channel<LL, Lane, kChecks, kRanks> ch(memory, 1, lane);
  const auto slot = static_cast<std::uint32_t>(lane.thread_rank());
  const auto held = ch.hold(slot);
  for (int epoch = 0; epoch < epochs; ++epoch) {
    std::uint32_t result = 0;
    const std::uint32_t own = value_of(ch.rank(), epoch, slot);
    if (!ch.bcast(held, own) ||
        !(epoch % 2 == 0 ? ch.recv_reduce(held, own, Chain{}, result)
                         : ch.template recv_reduce<true>(held, own, Chain{}, result)) ||
        result != chain_of(ch.nranks(), epoch, slot) || !ch.advance_epoch())
      ++wrong;
  }
}
template <bool kChecks>
void by_held_slots(const device::Memory& memory, Lane lane, int epochs, std::atomic<int>& wrong) {
  switch (epochs % 2 == 0 ? memory.shape.nranks : 0) {
    case 2:
      return by_held_slots<kChecks, 2>(memory, lane, epochs, wrong);
    case 3:
      return by_held_slots<kChecks, 3>(memory, lane, epochs, wrong);
    default:
      return by_held_slots<kChecks, 0>(memory, lane, epochs, wrong);
  }
}

TEST_P(DeviceChannel, HeldSlots) {
  for (const int few : {30, 31}) {
    LocalRanks ranks(shape());
    std::atomic<int> wrong{0};
    run_ranks(ranks, nranks(), lanes(), [&](const device::Memory& memory, Lane lane) {
      checks() ? by_held_slots<true>(memory, lane, few, wrong)
               : by_held_slots<false>(memory, lane, few, wrong);
    });
    EXPECT_EQ(wrong, 0);
    expect_no_fault(ranks);
  }
}

TEST_P(DeviceChannel, TheEpochStartsAnew) {
  for (const bool sentinel : {false, true}) {
    LocalRanks ranks(shape());
    for (int rank = 0; rank < nranks(); ++rank) set_epoch(ranks.memory(rank), 1, 0xfffffff0u);
    std::atomic<int> wrong{0};
    run_ranks(ranks, nranks(), lanes(), [&](const device::Memory& memory, Lane lane) {
      sentinel ? all_to_all<Sentinel>(checks(), memory, lane, 40, wrong)
               : all_to_all<LL>(checks(), memory, lane, 40, wrong);
    });
    EXPECT_EQ(wrong, 0);
    expect_no_fault(ranks);
    // 15 up to 0xffffffff; then from 2 on.
    for (int rank = 0; nranks() > 1 && rank < nranks(); ++rank)
      EXPECT_EQ(epoch_of(ranks.memory(rank), 1), 26u);
  }
}

// Another value to each peer; three slots a lane, asked for at once; then slots of all sizes of value.
TEST_P(DeviceChannel, SendAndRecv) {
  struct Five {
    std::uint8_t byte[5];
  };
  device::Shape shape = this->shape();
  shape.slots = 64;
  LocalRanks ranks(shape);
  std::atomic<int> wrong{0};
  run_ranks(ranks, nranks(), lanes(), [&](const device::Memory& memory, Lane lane) {
    Channel<LL, Lane, true> ch(memory, 0, lane);
    const auto own = static_cast<std::uint32_t>(lane.thread_rank());
    const auto width = static_cast<std::uint32_t>(lane.size());
    for (int epoch = 0; epoch < epochs() / 4; ++epoch) {
      for (int peer = 0; peer < ch.nranks(); ++peer) {
        if (peer == ch.rank()) continue;
        for (std::uint32_t i = 0; i < 3; ++i)
          wrong += !ch.send(peer, own + i * width, value_of(ch.rank() * 8 + peer, epoch, i));
        wrong += !ch.send(peer, 3 * width + own, Five{{1, 2, 3, 4, static_cast<std::uint8_t>(epoch)}});
      }
      for (int source = 0; source < ch.nranks(); ++source) {
        if (source == ch.rank()) continue;
        std::uint32_t got[3];
        Five five{};
        wrong += !ch.recv_unrolled(source, own, width, got);
        for (std::uint32_t i = 0; i < 3; ++i) wrong += got[i] != value_of(source * 8 + ch.rank(), epoch, i);
        wrong += !ch.recv(source, 3 * width + own, five) || five.byte[4] != static_cast<std::uint8_t>(epoch);
      }
      ch.advance_epoch();
    }
  });
  EXPECT_EQ(wrong, 0);
  expect_no_fault(ranks);
}

TEST_P(DeviceChannel, PutSignalWait) {
  LocalRanks ranks(shape());
  std::atomic<int> wrong{0};
  run_ranks(ranks, nranks(), lanes(), [&](const device::Memory& memory, Lane lane) {
    Channel<Simple, Lane, true> ch(memory, 0, lane);
    for (int epoch = 0; epoch < epochs() / 2; ++epoch) {
      for (int peer = 0; peer < ch.nranks(); ++peer) {
        if (peer == ch.rank()) continue;
        for (int cell = lane.lane; cell < 8; cell += lane.lanes) {
          const exec::Pack pack = value_of(ch.rank(), epoch, static_cast<std::uint32_t>(cell));
          wrong += !ch.put(peer, static_cast<std::uint32_t>(cell), {{pack, ~pack}});
        }
        wrong += !ch.signal(peer);
      }
      for (int source = 0; source < ch.nranks(); ++source) {
        if (source == ch.rank()) continue;
        wrong += !ch.wait_signal(source);
        // Of another lane's storing.
        const auto cell = static_cast<std::uint32_t>((lane.lane + 1) % 8);
        const exec::Vec got = ch.get(source, cell);
        wrong += got.pack[0] != value_of(source, epoch, cell) || got.pack[1] != ~got.pack[0];
      }
      ch.advance_epoch();
    }
  });
  EXPECT_EQ(wrong, 0);
  expect_no_fault(ranks);
}

// Plain memory of each rank is read by the others after the barrier.
template <class Protocol, bool kChecks>
void barriers(const device::Memory& memory, Lane lane, std::vector<int>& written, std::atomic<int>& wrong) {
  Channel<Protocol, Lane, kChecks> ch(memory, 0, lane);
  const auto own = static_cast<std::size_t>(ch.rank() * lane.lanes + lane.lane);
  for (int round = 1; round <= 60; ++round) {
    written[own] = round;
    wrong += !ch.barrier();
    for (const int one : written) wrong += one != round;
    wrong += !ch.barrier();
  }
}
TEST_P(DeviceChannel, Barrier) {
  LocalRanks ranks(shape());
  for (int rank = 0; rank < nranks(); ++rank) set_epoch(ranks.memory(rank), 0, 0xfffffff0u);
  std::vector<int> written(static_cast<std::size_t>(nranks() * lanes()));
  std::atomic<int> wrong{0};
  run_ranks(ranks, nranks(), lanes(), [&](const device::Memory& memory, Lane lane) {
    checks() ? barriers<LL, true>(memory, lane, written, wrong)
             : barriers<Simple, false>(memory, lane, written, wrong);
  });
  EXPECT_EQ(wrong, 0);
  expect_no_fault(ranks);
}

INSTANTIATE_TEST_SUITE_P(Groups, DeviceChannel,
                         testing::Combine(testing::Values(1, 2, 3, 5), testing::Values(1, 3),
                                          testing::Bool()),
                         [](const auto& chosen) {
                           return std::to_string(std::get<0>(chosen.param)) + "RanksOf" +
                                  std::to_string(std::get<1>(chosen.param)) +
                                  (std::get<2>(chosen.param) ? "Checked" : "");
                         });

// All bits set would never be seen to arrive.
TEST(DeviceSentinel, AllOnesArriveAsANan) {
  LocalRanks ranks({.nranks = 2, .packets = 1});
  std::uint64_t got[2][2] = {};
  run_ranks(ranks, 2, 1, [&](const device::Memory& memory, Lane lane) {
    Channel<Sentinel, Lane> ch(memory, 0, lane);
    const exec::Vec ones{{~exec::Pack{0}, 0xffffffff00000001u}};
    exec::Vec value{};
    EXPECT_TRUE(ch.bcast(0, ones));
    EXPECT_TRUE(ch.recv(1 - ch.rank(), 0, value));
    got[ch.rank()][0] = value.pack[0];
    got[ch.rank()][1] = value.pack[1];
  });
  for (const auto& rank : got) {
    EXPECT_EQ(rank[0], 0x7fffffff7fffffffu);
    EXPECT_EQ(rank[1], 0x7fffffff00000001u);
  }
}

TEST(DevicePlan, ErrorsNameTheField) {
  const auto error_of = [](const device::Shape& shape) {
    try {
      (void)device::plan(shape);
    } catch (const std::invalid_argument& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(error_of({.nranks = 0}), "nranks: 0 is not between 1 and 8");
  EXPECT_EQ(error_of({.nranks = 9}), "nranks: 9 is not between 1 and 8");
  EXPECT_EQ(error_of({.nranks = 2, .channels = 0}), "channels: 0 is not between 1 and 1024");
  EXPECT_EQ(error_of({.nranks = 2, .channels = 1025}), "channels: 1025 is not between 1 and 1024");
  EXPECT_EQ(error_of({.nranks = 2, .slots = 1048577}), "slots: 1048577 is not between 0 and 1048576");
  EXPECT_EQ(error_of({.nranks = 2, .packets = 1048577}), "packets: 1048577 is not between 0 and 1048576");
  EXPECT_EQ(error_of({.nranks = 2, .cells = 1048577}), "cells: 1048577 is not between 0 and 1048576");
  EXPECT_EQ(error_of({.nranks = 2, .checks = 2}), "checks: 2 is not between 0 and 1");
  const device::Plan plan = device::plan({.nranks = 2, .channels = 3, .slots = 10, .checks = 0});
  // Two banks of two sources: 128-byte flags, 10 lines of 16 bytes each.
  EXPECT_EQ(plan.shared_bytes, 3u * (4 * 128 + 4 * 10 * 16));
  EXPECT_EQ(plan.own_bytes, 3u * 128);
  EXPECT_EQ(device::plan({.nranks = 2, .channels = 1, .slots = 64, .checks = 1}).own_bytes,
            128u + 2 * 64 * 4);
}

}  // namespace
}  // namespace nearlight::test
