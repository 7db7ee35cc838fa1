// LL: more epochs than banks, groups, rounds, the variant of the CPU (streamed) and of the GPU (packs held in
// registers).
#include <gtest/gtest.h>

#include "tests/model/exchange.hpp"
#include "tests/model/mutants.hpp"

namespace nearlight::model {
namespace {

constexpr auto kLl = Protocol::ll;

struct TwoRanks : Case<> {
  static constexpr Step kStepList[] = {{kLl, 2}, {kLl, 2}, {kLl, 1}};
};
struct OneEpoch : TwoRanks {
  static constexpr Step kStepList[] = {{kLl, 2}};
};
struct TwoRanksHeld : TwoRanks {
  static constexpr int kHeld = 1;
};
struct TwoRanksLong : TwoRanks {
  static constexpr Step kStepList[] = {{kLl, 2}, {kLl, 2}, {kLl, 2}, {kLl, 2}, {kLl, 2}, {kLl, 2}};
};
struct ThreeRanks : TwoRanks {
  static constexpr int kRanks = 3;
  static constexpr Step kStepList[] = {{kLl, 2}, {kLl, 2}, {kLl, 2}, {kLl, 2}};
};
struct ThreeRanksHeld : ThreeRanks {
  static constexpr int kHeld = 1;
};

TEST(Ll, TwoRanksOneEpochEveryInterleaving) {
  if (slow_tier()) return expect_holds<Exchange<OneEpoch>>(Search::full());
  expect_holds<Exchange<OneEpoch>>(Search::bounded(4));
}
TEST(Ll, TwoRanksThreeEpochsEveryInterleavingOfFewSwitches) {
  expect_holds<Exchange<TwoRanks>>(Search::bounded(slow_tier() ? 3u : 2u));
}
TEST(Ll, TwoRanksThreeEpochsHeldEveryInterleavingOfFewSwitches) {
  expect_holds<Exchange<TwoRanksHeld>>(Search::bounded(slow_tier() ? 3u : 2u));
}
TEST(Ll, TwoRanksSixEpochs) { expect_holds_at_random<Exchange<TwoRanksLong>>(50'000, 200'000); }
TEST(Ll, ThreeRanks) { expect_holds_at_random<Exchange<ThreeRanks>>(20'000, 100'000); }
TEST(Ll, ThreeRanksHeld) { expect_holds_at_random<Exchange<ThreeRanksHeld>>(20'000, 100'000); }

// Two lanes a rank; the second round of the first session is partial, so the second lane has nothing to send
// or to hear in it, and would run ahead into the bank of the first round in the next session.
struct Lanes : Case<> {
  static constexpr int kLanes = 2, kSlots = 2;
  static constexpr Step kStepList[] = {{kLl, 6}, {kLl, 4}};
};
struct LanesHeld : Lanes {
  static constexpr int kHeld = 1;
};
struct LanesRounds : Lanes {
  static constexpr Step kStepList[] = {{kLl, 10}, {kLl, 3}, {kLl, 4, true}, {kLl, 2}, {kLl, 8}};
};
struct LanesRoundsHeld : LanesRounds {
  static constexpr int kHeld = 1;
};
struct LanesAgainstOne : Lanes {
  static constexpr int kLanesOfLastRank = 1;
};
struct SlotsHeldByTwos : Case<> {
  static constexpr int kLanes = 2, kSlots = 4, kHeld = 2;
  static constexpr Step kStepList[] = {{kLl, 12}, {kLl, 6}, {kLl, 8}};
};

TEST(Ll, LanesAgainstOneEveryInterleavingOfFewSwitches) {
  expect_holds<Exchange<LanesAgainstOne>>(Search::bounded(slow_tier() ? 1u : 0u));
}
TEST(Ll, Lanes) { expect_holds_at_random<Exchange<Lanes>>(20'000, 100'000); }
TEST(Ll, LanesHeld) { expect_holds_at_random<Exchange<LanesHeld>>(20'000, 100'000); }
TEST(Ll, LanesRoundsOfAllSizes) { expect_holds_at_random<Exchange<LanesRounds>>(10'000, 50'000); }
TEST(Ll, LanesRoundsOfAllSizesHeld) { expect_holds_at_random<Exchange<LanesRoundsHeld>>(10'000, 50'000); }
TEST(Ll, TwoPacksALaneHeld) { expect_holds_at_random<Exchange<SlotsHeldByTwos>>(10'000, 50'000); }

// The GPU's: two lanes that stay together, the second doubling the first where the message has only one pack;
// slots that move from call to call, so that another lane reads and writes them.
struct Lockstep : Lanes {
  using Space = LockstepPairs;
  template <class Memory>
  using View = exec::ModelRegion<Space, Memory>;
  static constexpr int kHeld = 1;
  static constexpr Step kStepList[] = {{kLl, 2}, {kLl, 6}, {kLl, 2, true}, {kLl, 2}, {kLl, 3}};
};
struct LockstepHeldByTwos : Lockstep {
  static constexpr int kSlots = 4, kHeld = 2;
  static constexpr Step kStepList[] = {{kLl, 6}, {kLl, 2}, {kLl, 10}, {kLl, 5}};
};
struct MovingSlots : Lanes {
  static constexpr int kHeld = 1, kSlots = 3, kSlotsMoved = 1;
  static constexpr Step kStepList[] = {{kLl, 6}, {kLl, 4}, {kLl, 2}, {kLl, 2}, {kLl, 6}};
};

TEST(Ll, Lockstep) { expect_holds_at_random<Exchange<Lockstep>>(10'000, 50'000); }
TEST(Ll, LockstepTwoPacksALane) { expect_holds_at_random<Exchange<LockstepHeldByTwos>>(10'000, 50'000); }
TEST(Ll, MovingSlots) { expect_holds_at_random<Exchange<MovingSlots>>(10'000, 50'000); }

struct InOneBank : TwoRanks {
  template <class Memory>
  using View = OneBank<Memory>;
};
struct WithHalfAFlag : TwoRanks {
  using Space = OneFlagALine;
  template <class Memory>
  using View = exec::ModelRegion<Space, Memory>;
};
struct WithoutSync : Lanes {
  using Coop = NoSync;
};
struct WithoutSyncHeld : LanesHeld {
  using Coop = NoSync;
};

// A peer overwrites a line before it was read; its reader then waits for ever.
TEST(LlMutant, OneBankIsFound) { expect_found<Exchange<InOneBank>>(rl::test_result_livelock, 10'000); }
TEST(LlMutant, HalfAFlagIsFound) {
  expect_found<Exchange<WithHalfAFlag>>(rl::test_result_user_assert_failed, 10'000);
}
TEST(LlMutant, NoSyncBetweenRoundsIsFound) {
  expect_found<Exchange<WithoutSync>>(rl::test_result_livelock, 100'000);
}
TEST(LlMutant, NoSyncBetweenRoundsHeldIsFound) {
  expect_found<Exchange<WithoutSyncHeld>>(rl::test_result_livelock, 100'000);
}

}  // namespace
}  // namespace nearlight::model
