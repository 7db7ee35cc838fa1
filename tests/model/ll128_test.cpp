// LL128, and sums that all ranks add to: a wide line is one value here, relaxed and whole, which is what the
// GPU is tested for at creation. What is set to zero is watched as the sentinel's resets are: a store or an
// add that is not ordered after it is a data race.
#include <gtest/gtest.h>

#include "tests/model/exchange.hpp"
#include "tests/model/mutants.hpp"

namespace nearlight::model {
namespace {

constexpr auto kLl128 = Protocol::ll128;
constexpr auto kLl = Protocol::ll;
constexpr auto kSimple = Protocol::simple;
constexpr auto kSentinel = Protocol::sentinel;

// A line has four elements.
constexpr Step lines(int count, bool same_session = false) { return {kLl128, count, same_session}; }
constexpr Step sums(int count, bool same_session = false) { return {kLl128, count, same_session, true}; }

struct Base : Case<> {
  static constexpr int kWide = 2, kSlots = 2, kPackets = 2;
  // Between sessions lies the boundary of two kernels.
  static void fence_between_sessions() { Space::fence_system(); }
};
struct OneEpoch : Case<> {
  static constexpr int kWide = 1;
  static constexpr Step kStepList[] = {lines(4)};
};
struct Lines : Case<> {
  static constexpr int kWide = 1;
  static constexpr Step kStepList[] = {lines(4), lines(3), lines(4), lines(1), lines(4)};
};
struct LinesThreeRanks : Lines {
  static constexpr int kRanks = 3;
};
struct LinesRounds : Case<> {
  static constexpr int kWide = 1;
  static constexpr Step kStepList[] = {lines(13), lines(4, true), lines(9), lines(2)};
};
struct LinesLanes : Case<> {
  static constexpr int kLanes = 2, kWide = 2;
  static constexpr Step kStepList[] = {lines(12), lines(4), lines(8), lines(3)};
};
// A unit of two lines, one of each lane.
struct LinesLockstep : LinesLanes {
  using Space = LockstepPairs;
  template <class Memory>
  using View = exec::ModelRegion<Space, Memory>;
};
struct LinesMixed : Base {
  static constexpr Step kStepList[] = {lines(8),     {kLl, 4}, lines(5),       {kSentinel, 8},
                                       {kSimple, 4}, lines(8), {kLl, 2, true}, lines(4, true)};
};
struct LinesAcrossTheWrap : Case<5> {
  static constexpr int kWide = 1;
  static constexpr std::uint32_t kInitialEpoch = 3;
  static constexpr Step kStepList[] = {lines(4), lines(4), {kLl, 2}, lines(4), lines(4)};
  static void fence_between_sessions() { Space::fence_system(); }
};

TEST(Ll128, TwoRanksOneEpochEveryInterleaving) { expect_holds<Exchange<OneEpoch>>(Search::full()); }
TEST(Ll128, TwoRanksFiveEpochsEveryInterleavingOfFewSwitches) {
  expect_holds<Exchange<Lines>>(Search::bounded(slow_tier() ? 3u : 2u));
}
TEST(Ll128, TwoRanks) { expect_holds_at_random<Exchange<Lines>>(20'000, 200'000); }
TEST(Ll128, ThreeRanks) { expect_holds_at_random<Exchange<LinesThreeRanks>>(10'000, 100'000); }
TEST(Ll128, Rounds) { expect_holds_at_random<Exchange<LinesRounds>>(10'000, 100'000); }
TEST(Ll128, Lanes) { expect_holds_at_random<Exchange<LinesLanes>>(10'000, 100'000); }
TEST(Ll128, Lockstep) { expect_holds_at_random<Exchange<LinesLockstep>>(10'000, 50'000); }
TEST(Ll128, MixedWithTheOthers) { expect_holds_at_random<Exchange<LinesMixed>>(10'000, 100'000); }
TEST(Ll128, AcrossTheWrap) { expect_holds_at_random<Exchange<LinesAcrossTheWrap>>(10'000, 50'000); }

struct SumsOneEpoch : Base {
  static constexpr int kWide = 1;
  static constexpr Step kStepList[] = {sums(8)};
};
struct Sums : Base {
  static constexpr Step kStepList[] = {sums(8), sums(13), sums(16), sums(5), sums(16)};
};
struct SumsThreeRanks : Base {
  static constexpr int kRanks = 3;
  static constexpr Step kStepList[] = {sums(12), sums(16), sums(9), sums(12)};
};
// A part is one line, so that a round is an epoch of a session.
struct SumsRounds : Base {
  static constexpr int kWide = 1;
  static constexpr Step kStepList[] = {sums(16), sums(16, true), sums(8), sums(16)};
};
struct SumsLanes : Base {
  static constexpr int kLanes = 2;
  static constexpr Step kStepList[] = {sums(16), sums(16), sums(11)};
};
struct SumsMixed : Base {
  static constexpr Step kStepList[] = {
      sums(8), lines(8), {kLl, 4}, sums(12), {kSentinel, 8, false, true}, sums(16), {kSimple, 4}, sums(6)};
};
// What tells a peer that a sum is at rest may be LL's, or a line's.
struct SumsMixedInASession : Base {
  static constexpr Step kStepList[] = {
      sums(8), {kLl, 2, true}, sums(12, true), lines(4, true), sums(8, true)};
};
struct SumsAcrossTheWrap : Case<5> {
  static constexpr int kWide = 2;
  static constexpr std::uint32_t kInitialEpoch = 3;
  static constexpr Step kStepList[] = {sums(8), sums(16), sums(5), sums(16)};
  static void fence_between_sessions() { Space::fence_system(); }
};

TEST(AtomicTwoShot, OneEpochEveryInterleavingOfFewSwitches) {
  expect_holds<Exchange<SumsOneEpoch>>(Search::bounded(slow_tier() ? 6u : 4u));
}
TEST(AtomicTwoShot, RoundsEveryInterleavingOfFewSwitches) {
  expect_holds<Exchange<SumsRounds>>(Search::bounded(slow_tier() ? 2u : 1u));
}
TEST(AtomicTwoShot, TwoRanks) { expect_holds_at_random<Exchange<Sums>>(10'000, 100'000); }
TEST(AtomicTwoShot, ThreeRanks) { expect_holds_at_random<Exchange<SumsThreeRanks>>(10'000, 100'000); }
TEST(AtomicTwoShot, Rounds) { expect_holds_at_random<Exchange<SumsRounds>>(10'000, 100'000); }
TEST(AtomicTwoShot, Lanes) { expect_holds_at_random<Exchange<SumsLanes>>(5'000, 50'000); }
TEST(AtomicTwoShot, MixedWithTheOthers) { expect_holds_at_random<Exchange<SumsMixed>>(5'000, 50'000); }
TEST(AtomicTwoShot, MixedInASession) {
  expect_holds_at_random<Exchange<SumsMixedInASession>>(10'000, 100'000);
}
TEST(AtomicTwoShot, AcrossTheWrap) { expect_holds_at_random<Exchange<SumsAcrossTheWrap>>(5'000, 50'000); }

template <class B, class S>
struct In : B {
  using Space = S;
  template <class Memory>
  using View = exec::ModelRegion<S, Memory>;
};
template <class B, template <class> class V>
struct Seen : B {
  template <class Memory>
  using View = V<Memory>;
};
template <class B>
struct NoBoundary : B {
  static void fence_between_sessions() {}
};
template <class B>
struct Unsynced : B {
  using Coop = NoSync;
};

TEST(Ll128Mutant, TheWordBeforeThePayloadIsFound) {
  expect_found<Exchange<In<Lines, TornLines>>>(rl::test_result_user_assert_failed, 10'000);
}
TEST(Ll128Mutant, OneBankIsFound) {
  expect_found<Exchange<Seen<Lines, OneWideBank>>>(rl::test_result_livelock, 10'000);
}
TEST(Ll128Mutant, NoSyncBetweenRoundsIsFound) {
  expect_found<Exchange<Unsynced<LinesLanes>>>(rl::test_result_livelock, 100'000);
}
TEST(Ll128Mutant, LinesNeverClearedAtTheWrapAreFound) {
  expect_found<Exchange<In<LinesAcrossTheWrap, NeverZeroed<5>>>>(rl::test_result_user_assert_failed, 10'000);
}
TEST(AtomicTwoShotMutant, TheWordBeforeThePayloadIsFound) {
  expect_found<Exchange<In<Sums, TornLines>>>(rl::test_result_user_assert_failed, 10'000);
}
// What is left makes the word another one, which nobody waits for.
TEST(AtomicTwoShotMutant, NoZerosAreFound) {
  expect_found<Exchange<In<Sums, NeverZeroed<0xffffffffu>>>>(rl::test_result_livelock, 10'000);
}
TEST(AtomicTwoShotMutant, OneRankTakenForAllIsFound) {
  expect_found<Exchange<In<Sums, ZeroedTooSoon>>>(rl::test_result_user_assert_failed, 10'000);
}
TEST(AtomicTwoShotMutant, OneBankIsFound) {
  expect_found<Exchange<Seen<Sums, OneSumBank>>>(rl::test_result_data_race, 10'000);
}
TEST(AtomicTwoShotMutant, NoBoundaryBetweenSessionsIsFound) {
  expect_found<Exchange<NoBoundary<Sums>>>(rl::test_result_data_race, 10'000);
}
TEST(AtomicTwoShotMutant, NoFenceBetweenRoundsIsFound) {
  expect_found<Exchange<In<SumsRounds, NoFence<0xffffffffu>>>>(rl::test_result_data_race, 10'000);
}

}  // namespace
}  // namespace nearlight::model
