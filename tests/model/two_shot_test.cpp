// Two-shot: contributions to the owner, results from it, in one epoch and in halves of the slots.
#include <gtest/gtest.h>

#include "tests/model/exchange.hpp"
#include "tests/model/mutants.hpp"

namespace nearlight::model {
namespace {

constexpr auto kSentinel = Protocol::sentinel;
constexpr auto kLl = Protocol::ll;
constexpr auto kSimple = Protocol::simple;

constexpr Step ll(int count, bool same_session = false) { return {kLl, count, same_session, true}; }
constexpr Step sentinel(int count, bool same_session = false) {
  return {kSentinel, count, same_session, true};
}

struct Base : Case<> {
  static constexpr int kSlots = 4, kPackets = 4, kCells = 2;
  // Between sessions lies the boundary of two kernels.
  static void fence_between_sessions() { Space::fence_system(); }
};
struct LlOneEpoch : Base {
  static constexpr Step kStepList[] = {ll(4)};
};
struct SentinelOneEpoch : Base {
  static constexpr Step kStepList[] = {sentinel(8)};
};
struct Ll : Base {
  static constexpr Step kStepList[] = {ll(4), ll(7), ll(6), ll(8)};
};
struct LlThreeRanks : Base {
  static constexpr int kRanks = 3;
  static constexpr Step kStepList[] = {ll(8), ll(6), ll(12), ll(7)};
};
struct LlRounds : Base {
  static constexpr Step kStepList[] = {ll(16), ll(11, true), ll(16)};
};
struct LlLanes : Base {
  static constexpr int kLanes = 2;
  static constexpr Step kStepList[] = {ll(8), ll(16), ll(5)};
};
struct Sentinel : Base {
  static constexpr Step kStepList[] = {sentinel(8), sentinel(13), sentinel(16), sentinel(10)};
};
struct SentinelThreeRanks : Base {
  static constexpr int kRanks = 3;
  static constexpr Step kStepList[] = {sentinel(12), sentinel(16), sentinel(9)};
};
struct SentinelRounds : Base {
  static constexpr int kPackets = 2;  // a part is one packet
  static constexpr Step kStepList[] = {sentinel(16), sentinel(16, true), sentinel(8)};
};
struct SentinelLanes : Base {
  static constexpr int kLanes = 2;
  static constexpr Step kStepList[] = {sentinel(16), sentinel(16), sentinel(11)};
};
// All algorithms and protocols take turns in the same slots.
struct Mixed : Base {
  static constexpr Step kStepList[] = {ll(8),        {kLl, 2},     sentinel(12),    {kSentinel, 4},
                                       {kSimple, 4}, sentinel(16), {kSentinel, 16}, ll(6)};
};
struct MixedThreeRanks : Base {
  static constexpr int kRanks = 3;
  static constexpr Step kStepList[] = {sentinel(12), {kLl, 2}, ll(8), {kSentinel, 3}, sentinel(12)};
};
struct MixedInASession : Base {
  static constexpr Step kStepList[] = {
      sentinel(8), {kLl, 2, true}, sentinel(12, true), ll(8, true), sentinel(8, true)};
};
struct AcrossTheWrap : Case<5> {
  static constexpr int kSlots = 4;
  static constexpr std::uint32_t kInitialEpoch = 3;
  static constexpr Step kStepList[] = {ll(4), ll(8), ll(5), ll(8)};
  static void fence_between_sessions() { Space::fence_system(); }
};

TEST(TwoShot, LlOneEpochEveryInterleavingOfFewSwitches) {
  expect_holds<Exchange<LlOneEpoch>>(Search::bounded(slow_tier() ? 5u : 3u));
}
TEST(TwoShot, SentinelOneEpochEveryInterleavingOfFewSwitches) {
  expect_holds<Exchange<SentinelOneEpoch>>(Search::bounded(slow_tier() ? 5u : 3u));
}
TEST(TwoShot, Ll) { expect_holds_at_random<Exchange<Ll>>(10'000, 100'000); }
TEST(TwoShot, LlThreeRanks) { expect_holds_at_random<Exchange<LlThreeRanks>>(5'000, 50'000); }
TEST(TwoShot, LlRounds) { expect_holds_at_random<Exchange<LlRounds>>(5'000, 50'000); }
TEST(TwoShot, LlLanes) { expect_holds_at_random<Exchange<LlLanes>>(5'000, 50'000); }
TEST(TwoShot, Sentinel) { expect_holds_at_random<Exchange<Sentinel>>(10'000, 100'000); }
TEST(TwoShot, SentinelThreeRanks) { expect_holds_at_random<Exchange<SentinelThreeRanks>>(5'000, 50'000); }
TEST(TwoShot, SentinelRounds) { expect_holds_at_random<Exchange<SentinelRounds>>(5'000, 50'000); }
TEST(TwoShot, SentinelLanes) { expect_holds_at_random<Exchange<SentinelLanes>>(5'000, 50'000); }
TEST(TwoShot, MixedWithTheOthers) { expect_holds_at_random<Exchange<Mixed>>(5'000, 50'000); }
TEST(TwoShot, MixedThreeRanks) { expect_holds_at_random<Exchange<MixedThreeRanks>>(5'000, 50'000); }
TEST(TwoShot, MixedInASession) { expect_holds_at_random<Exchange<MixedInASession>>(5'000, 50'000); }
TEST(TwoShot, AcrossTheWrap) { expect_holds_at_random<Exchange<AcrossTheWrap>>(5'000, 50'000); }

template <class B, class S>
struct In : B {
  using Space = S;
  template <class Memory>
  using View = exec::ModelRegion<S, Memory>;
};
// Results go where contributions go.
template <class Memory>
struct OneHalf : exec::ModelRegion<exec::ModelSpace, Memory> {
  using Parent = exec::ModelRegion<exec::ModelSpace, Memory>;
  using Parent::Parent;
  auto& line(int peer, int bank, int source, std::uint32_t slot) const {
    return Parent::line(peer, bank, source, slot % 2);
  }
  auto& packet(int peer, int bank, int source, std::uint32_t slot) const {
    return Parent::packet(peer, bank, source, slot % 2);
  }
};
template <class B, template <class> class V>
struct Seen : B {
  template <class Memory>
  using View = V<Memory>;
};

TEST(TwoShotMutant, ResultsInTheContributionsSlotsAreFound) {
  expect_found<Exchange<Seen<LlThreeRanks, OneHalf>>>(rl::test_result_user_assert_failed, 10'000);
}
TEST(TwoShotMutant, OneBankIsFound) {
  expect_found<Exchange<Seen<Sentinel, OnePacketBank>>>(rl::test_result_data_race, 10'000);
}
TEST(TwoShotMutant, NoResetIsFound) {
  expect_found<Exchange<In<Sentinel, NeverReset>>>(rl::test_result_user_assert_failed, 10'000);
}
TEST(TwoShotMutant, NoFenceBetweenRoundsIsFound) {
  expect_found<Exchange<In<SentinelRounds, NoFence<0xffffffffu>>>>(rl::test_result_data_race, 10'000);
}

}  // namespace
}  // namespace nearlight::model
