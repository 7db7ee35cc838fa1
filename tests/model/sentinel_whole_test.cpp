// The sentinel's one-shot for whole runs of threads, which has several packets of a thread under way at once,
// in rounds. That its threads leave when they fail is no matter of orders:
// tests/unit/protocol_whole_test.cpp.
#include <gtest/gtest.h>

#include "tests/model/exchange.hpp"
#include "tests/model/mutants.hpp"

namespace nearlight::model {
namespace {

constexpr auto kSentinel = Protocol::sentinel;

// Nobody fails here, so nobody leaves.
template <class S>
struct Leaving : S {
  static void leave() { RL_ASSERT(false); }
};

template <class S>
struct In : Case<> {
  using Space = Leaving<S>;
  template <class Memory>
  using View = exec::ModelRegion<Space, Memory>;
  static constexpr int kPackets = 2, kAtOnce = 2;
  // Two rounds; one; one and a half, the last one packet of two.
  static constexpr Step kStepList[] = {{kSentinel, 16}, {kSentinel, 8}, {kSentinel, 12}, {kSentinel, 8}};
  static void fence_between_sessions() { Space::fence_system(); }
};
using TwoRanks = In<ModelSpace>;

struct ThreeRanks : TwoRanks {
  static constexpr int kRanks = 3;
  static constexpr Step kStepList[] = {{kSentinel, 16}, {kSentinel, 12}};
};
// Two packets a lane at once, then one; then two of which each lane has one.
template <class S>
struct LanesIn : In<S> {
  static constexpr int kLanes = 2, kPackets = 4;
  static constexpr Step kStepList[] = {{kSentinel, 16}, {kSentinel, 8}, {kSentinel, 12}};
};
using Lanes = LanesIn<ModelSpace>;
struct LanesRounds : Lanes {
  static constexpr int kPackets = 2;
  static constexpr Step kStepList[] = {{kSentinel, 16}, {kSentinel, 12}};
};

TEST(SentinelWhole, EveryInterleavingOfFewSwitches) {
  expect_holds<Exchange<TwoRanks>>(Search::bounded(slow_tier() ? 2u : 1u));
}
TEST(SentinelWhole, TwoRanks) { expect_holds_at_random<Exchange<TwoRanks>>(10'000, 100'000); }
TEST(SentinelWhole, ThreeRanks) { expect_holds_at_random<Exchange<ThreeRanks>>(5'000, 50'000); }
TEST(SentinelWhole, Lanes) { expect_holds_at_random<Exchange<Lanes>>(5'000, 50'000); }
TEST(SentinelWhole, LanesRounds) { expect_holds_at_random<Exchange<LanesRounds>>(5'000, 50'000); }

struct InOneBank : TwoRanks {
  template <class Memory>
  struct View : exec::ModelRegion<Space, Memory> {
    using Base = exec::ModelRegion<Space, Memory>;
    using Base::Base;
    auto& packet(int peer, int, int source, std::uint32_t index) const {
      return Base::packet(peer, 0, source, index);
    }
  };
};
struct NoBoundary : TwoRanks {
  static void fence_between_sessions() {}
};
// Without a meeting one lane takes the epoch from where the other one puts the next.
struct NeverMeeting : Lanes {
  using Coop = NoSync;
};

TEST(SentinelWholeMutant, NoResetIsFound) {
  expect_found<Exchange<In<NeverReset>>>(rl::test_result_user_assert_failed, 10'000);
}
TEST(SentinelWholeMutant, HalfAPacketIsFound) {
  expect_found<Exchange<In<OneHalfAPacket>>>(rl::test_result_user_assert_failed, 10'000);
}
TEST(SentinelWholeMutant, OneBankIsFound) {
  expect_found<Exchange<InOneBank>>(rl::test_result_data_race, 10'000);
}
TEST(SentinelWholeMutant, NoBoundaryBetweenSessionsIsFound) {
  expect_found<Exchange<NoBoundary>>(rl::test_result_data_race, 10'000);
}
TEST(SentinelWholeMutant, NoFenceBetweenRoundsIsFound) {
  expect_found<Exchange<In<NoFence<0xffffffffu>>>>(rl::test_result_data_race, 10'000);
}
TEST(SentinelWholeMutant, ALaneThatMeetsNobodyIsFound) {
  expect_found<Exchange<NeverMeeting>>(rl::test_result_data_race, 10'000);
}

}  // namespace
}  // namespace nearlight::model
