// Sentinel: payload that is its own arrival, put back by its reader. A packet that is stored to before its
// reset is ordered loses what was stored; the checker, which executes stores in the order in which they
// become visible, is told of it by a data race (ModelClearings).
#include <gtest/gtest.h>

#include "tests/model/exchange.hpp"
#include "tests/model/mutants.hpp"

namespace nearlight::model {
namespace {

constexpr auto kSentinel = Protocol::sentinel;
constexpr auto kLl = Protocol::ll;
constexpr auto kSimple = Protocol::simple;

// Between sessions lies the boundary of two kernels.
struct Base : Case<> {
  static void fence_between_sessions() { Space::fence_system(); }
};
struct OneEpoch : Base {
  static constexpr Step kStepList[] = {{kSentinel, 4}};
};
struct TwoRanks : Base {
  static constexpr Step kStepList[] = {{kSentinel, 4}, {kSentinel, 3}, {kSentinel, 4}, {kSentinel, 4}};
};
struct TwoRanksLong : Base {
  static constexpr Step kStepList[] = {{kSentinel, 4}, {kSentinel, 2}, {kSentinel, 4}, {kSentinel, 4},
                                       {kSentinel, 1}, {kSentinel, 4}, {kSentinel, 4}};
};
struct ThreeRanks : TwoRanks {
  static constexpr int kRanks = 3;
};
// Rounds in one session: an epoch a packet.
struct Rounds : Base {
  static constexpr Step kStepList[] = {{kSentinel, 15}, {kSentinel, 4, true}, {kSentinel, 7}};
};
// In one session the next send is LL's.
struct MixedInASession : Base {
  static constexpr Step kStepList[] = {
      {kSentinel, 4}, {kLl, 2, true}, {kSentinel, 4, true}, {kSimple, 4, true}, {kSentinel, 4, true}};
};
// LL between two uses of a bank: it is LL's arrival that tells of the resets.
struct LlTellsOfResets : Base {
  static constexpr Step kStepList[] = {{kSentinel, 4},       {kLl, 2, true}, {kSentinel, 4, true},
                                       {kSentinel, 4, true}, {kLl, 2, true}, {kSentinel, 4, true}};
};
struct RoundsThreeRanks : Rounds {
  static constexpr int kRanks = 3;
};
struct Lanes : Base {
  static constexpr int kLanes = 2, kPackets = 2;
  static constexpr Step kStepList[] = {{kSentinel, 8}, {kSentinel, 5}, {kSentinel, 8}};
};
struct LanesRounds : Lanes {
  static constexpr Step kStepList[] = {{kSentinel, 15}, {kSentinel, 16}};
};
struct LanesThreeRanks : Lanes {
  static constexpr int kRanks = 3;
};
// All protocols take turns: a bank may be used again after epochs in which no packet moved.
struct Mixed : Base {
  static constexpr Step kStepList[] = {{kSentinel, 4}, {kLl, 2},     {kSentinel, 4}, {kSimple, 4},
                                       {kSentinel, 3}, {kSimple, 4}, {kLl, 1},       {kSentinel, 4}};
};
struct AcrossTheWrap : Case<5> {
  static constexpr std::uint32_t kInitialEpoch = 3;
  static constexpr Step kStepList[] = {{kSentinel, 4}, {kSentinel, 4}, {kSentinel, 4}, {kSentinel, 4}};
  static void fence_between_sessions() { Space::fence_system(); }
};

TEST(Sentinel, TwoRanksOneEpochEveryInterleavingOfFewSwitches) {
  expect_holds<Exchange<OneEpoch>>(Search::bounded(slow_tier() ? 6u : 4u));
}
TEST(Sentinel, TwoRanksFourEpochsEveryInterleavingOfFewSwitches) {
  expect_holds<Exchange<TwoRanks>>(Search::bounded(slow_tier() ? 3u : 2u));
}
TEST(Sentinel, RoundsEveryInterleavingOfFewSwitches) {
  expect_holds<Exchange<Rounds>>(Search::bounded(slow_tier() ? 2u : 1u));
}
TEST(Sentinel, TwoRanksSevenEpochs) { expect_holds_at_random<Exchange<TwoRanksLong>>(20'000, 200'000); }
TEST(Sentinel, ThreeRanks) { expect_holds_at_random<Exchange<ThreeRanks>>(10'000, 100'000); }
TEST(Sentinel, Rounds) { expect_holds_at_random<Exchange<Rounds>>(10'000, 100'000); }
TEST(Sentinel, RoundsThreeRanks) { expect_holds_at_random<Exchange<RoundsThreeRanks>>(5'000, 50'000); }
TEST(Sentinel, Lanes) { expect_holds_at_random<Exchange<Lanes>>(10'000, 100'000); }
TEST(Sentinel, LanesRounds) { expect_holds_at_random<Exchange<LanesRounds>>(5'000, 50'000); }
TEST(Sentinel, LanesThreeRanks) { expect_holds_at_random<Exchange<LanesThreeRanks>>(5'000, 50'000); }
TEST(Sentinel, MixedWithTheOthers) { expect_holds_at_random<Exchange<Mixed>>(10'000, 100'000); }
TEST(Sentinel, MixedInASession) { expect_holds_at_random<Exchange<MixedInASession>>(10'000, 100'000); }
TEST(Sentinel, LlTellsOfResets) { expect_holds_at_random<Exchange<LlTellsOfResets>>(10'000, 100'000); }
TEST(Sentinel, AcrossTheWrap) { expect_holds_at_random<Exchange<AcrossTheWrap>>(5'000, 50'000); }

template <class B, class S>
struct In : B {
  using Space = S;
  template <class Memory>
  using View = exec::ModelRegion<S, Memory>;
};
struct InOneBank : TwoRanks {
  template <class Memory>
  using View = OnePacketBank<Memory>;
};
struct NoBoundary : TwoRanks {
  static void fence_between_sessions() {}
};
// Every element is the sentinel, and is sent as it is.
struct AllOnes {
  using Cell = std::uint32_t;
  static Cell to_send(Cell) { return ~Cell{0}; }
};
struct NotRewritten : OneEpoch {
  using Rewrite = AllOnes;
};

TEST(SentinelMutant, NoResetIsFound) {
  expect_found<Exchange<In<TwoRanks, NeverReset>>>(rl::test_result_user_assert_failed, 10'000);
}
TEST(SentinelMutant, HalfAPacketIsFound) {
  expect_found<Exchange<In<TwoRanks, OneHalfAPacket>>>(rl::test_result_user_assert_failed, 10'000);
}
TEST(SentinelMutant, OneBankIsFound) { expect_found<Exchange<InOneBank>>(rl::test_result_data_race, 10'000); }
TEST(SentinelMutant, NoBoundaryBetweenSessionsIsFound) {
  expect_found<Exchange<NoBoundary>>(rl::test_result_data_race, 10'000);
}
TEST(SentinelMutant, NoFenceBetweenRoundsIsFound) {
  expect_found<Exchange<In<Rounds, NoFence<0xffffffffu>>>>(rl::test_result_data_race, 10'000);
}
TEST(SentinelMutant, AValueThatIsTheSentinelIsFound) {
  expect_found<Exchange<NotRewritten>>(rl::test_result_livelock, 100);
}

}  // namespace
}  // namespace nearlight::model
