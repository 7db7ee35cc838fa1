// Epochs start again at 2: flags of a full cycle ago must never be taken for new ones. A slot or flag that is
// used rarely still holds the very number of the present epoch unless it was cleared ([E2]).
#include <gtest/gtest.h>

#include "tests/model/exchange.hpp"
#include "tests/model/mutants.hpp"

namespace nearlight::model {
namespace {

constexpr auto kLl = Protocol::ll;
constexpr auto kSimple = Protocol::simple;

// Epochs 1 2 3 4 5 | 2 3 4 5 | 2 3. The second slot is used in the epochs 3, 3 and 3.
struct LlRare : Case<5> {
  static constexpr int kSlots = 2;
  static constexpr Step kStepList[] = {{kLl, 2}, {kLl, 2}, {kLl, 4}, {kLl, 2}, {kLl, 2}, {kLl, 2},
                                       {kLl, 4}, {kLl, 2}, {kLl, 2}, {kLl, 2}, {kLl, 4}};
};
// The same in one session of two lanes: the lane that hears a peer is not the one that stores to it next.
struct LlRareLanes : Case<5> {
  static constexpr int kLanes = 2, kSlots = 2;
  static constexpr Step kStepList[] = {{kLl, 2},       {kLl, 2, true}, {kLl, 4, true}, {kLl, 2, true},
                                       {kLl, 2, true}, {kLl, 4, true}, {kLl, 4, true}, {kLl, 2, true},
                                       {kLl, 2, true}, {kLl, 4, true}};
};
struct LlRareLanesHeld : LlRareLanes {
  static constexpr int kHeld = 1;
};
// Simple in the epochs 3, 3 and 3, LL in between.
struct SimpleRare : Case<5> {
  static constexpr Step kStepList[] = {{kLl, 2},     {kLl, 2}, {kSimple, 4}, {kLl, 2}, {kLl, 2},    {kLl, 2},
                                       {kSimple, 4}, {kLl, 2}, {kLl, 2},     {kLl, 2}, {kSimple, 4}};
  static void fence_between_sessions() { Space::fence_system(); }
};
// Simple only: epochs 1 2 3 4 5 | 2 3.
struct SimpleAll : Case<5> {
  static constexpr int kCells = 2;
  static constexpr Step kStepList[] = {{kSimple, 4}, {kSimple, 8}, {kSimple, 2}, {kSimple, 4},
                                       {kSimple, 8}, {kSimple, 4}, {kSimple, 4}};
};
struct SimpleAllLanes : SimpleAll {
  static constexpr int kLanes = 2;
  static constexpr Step kStepList[] = {{kSimple, 4},       {kSimple, 16, true}, {kSimple, 2, true},
                                       {kSimple, 8, true}, {kSimple, 4, true},  {kSimple, 4, true}};
};
// The shortest cycle there is, and a cycle that begins at its very end.
struct LlShortest : Case<3> {
  static constexpr Step kStepList[] = {{kLl, 2}, {kLl, 2}, {kLl, 2}, {kLl, 2}, {kLl, 2}, {kLl, 2}};
};
struct LlFromTheEnd : Case<0xfffffffdu> {
  static constexpr std::uint32_t kInitialEpoch = 0xfffffffbu;
  static constexpr Step kStepList[] = {{kLl, 2}, {kLl, 2}, {kLl, 2}, {kLl, 2}};
};
struct LlThreeRanks : LlRare {
  static constexpr int kRanks = 3;
  static constexpr Step kStepList[] = {{kLl, 2}, {kLl, 2}, {kLl, 4}, {kLl, 2}, {kLl, 2}, {kLl, 2}, {kLl, 4}};
};
struct LlAcrossTheWrap : Case<5> {
  static constexpr std::uint32_t kInitialEpoch = 4;
  static constexpr Step kStepList[] = {{kLl, 2}, {kLl, 2}, {kLl, 2}};
};
struct SimpleAcrossTheWrap : Case<5> {
  static constexpr std::uint32_t kInitialEpoch = 4;
  static constexpr Step kStepList[] = {{kSimple, 4}, {kSimple, 4}, {kSimple, 4}};
};

TEST(Wrap, LlEveryInterleavingOfFewSwitches) {
  expect_holds<Exchange<LlAcrossTheWrap>>(Search::bounded(slow_tier() ? 3u : 2u));
}
TEST(Wrap, SimpleEveryInterleavingOfFewSwitches) {
  expect_holds<Exchange<SimpleAcrossTheWrap>>(Search::bounded(slow_tier() ? 4u : 3u));
}
TEST(Wrap, LlSlotUsedOnceACycle) { expect_holds_at_random<Exchange<LlRare>>(10'000, 50'000); }
TEST(Wrap, LlSlotUsedRarelyLanes) { expect_holds_at_random<Exchange<LlRareLanes>>(5'000, 20'000); }
TEST(Wrap, LlSlotUsedRarelyLanesHeld) { expect_holds_at_random<Exchange<LlRareLanesHeld>>(5'000, 20'000); }
TEST(Wrap, SimpleFlagUsedOnceACycle) { expect_holds_at_random<Exchange<SimpleRare>>(10'000, 50'000); }
TEST(Wrap, SimpleFlagAlways) { expect_holds_at_random<Exchange<SimpleAll>>(10'000, 50'000); }
TEST(Wrap, SimpleFlagAlwaysLanes) { expect_holds_at_random<Exchange<SimpleAllLanes>>(5'000, 20'000); }
TEST(Wrap, ShortestCycle) { expect_holds_at_random<Exchange<LlShortest>>(10'000, 50'000); }
TEST(Wrap, FromTheEnd) { expect_holds_at_random<Exchange<LlFromTheEnd>>(10'000, 50'000); }
TEST(Wrap, LlThreeRanks) { expect_holds_at_random<Exchange<LlThreeRanks>>(5'000, 20'000); }

template <class Base, class S>
struct In : Base {
  using Space = S;
  template <class Memory>
  using View = exec::ModelRegion<S, Memory>;
  static void fence_between_sessions() {
    if constexpr (&Base::fence_between_sessions != &Case<5>::fence_between_sessions) S::fence_system();
  }
};

TEST(WrapMutant, LinesNeverClearedAreFound) {
  expect_found<Exchange<In<LlRare, NeverCleared<5>>>>(rl::test_result_user_assert_failed, 10'000);
}
TEST(WrapMutant, FlagsNeverClearedAreFound) {
  expect_found<Exchange<In<SimpleRare, NeverCleared<5>>>>(rl::test_result_user_assert_failed, 10'000);
}
TEST(WrapMutant, LlWithoutFencesIsFound) {
  expect_found<Exchange<In<LlRare, NoFence<5>>>>(rl::test_result_data_race, 10'000);
}
struct LlRareLanesNoSync : LlRareLanes {
  using Coop = NoSyncAfterClearing;
};
TEST(WrapMutant, LlWithoutTheSyncAfterTheClearingIsFound) {
  expect_found<Exchange<In<LlRareLanesNoSync, ClearingNoted<5>>>>(rl::test_result_data_race, 10'000);
}

}  // namespace
}  // namespace nearlight::model
