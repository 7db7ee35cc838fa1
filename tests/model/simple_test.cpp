// Simple: plain payload behind a release flag. An access that the flag does not order is a data race.
#include <gtest/gtest.h>

#include "tests/model/exchange.hpp"
#include "tests/model/mutants.hpp"

namespace nearlight::model {
namespace {

constexpr auto kSimple = Protocol::simple;

struct TwoRanks : Case<> {
  static constexpr Step kStepList[] = {{kSimple, 4}, {kSimple, 4}, {kSimple, 3}};
};
struct OneEpoch : TwoRanks {
  static constexpr Step kStepList[] = {{kSimple, 4}};
};
struct TwoRanksLong : TwoRanks {
  static constexpr Step kStepList[] = {{kSimple, 4}, {kSimple, 2}, {kSimple, 4},
                                       {kSimple, 4}, {kSimple, 1}, {kSimple, 4}};
};
struct ThreeRanks : TwoRanks {
  static constexpr int kRanks = 3;
  static constexpr Step kStepList[] = {{kSimple, 4}, {kSimple, 4}, {kSimple, 4}, {kSimple, 4}};
};
struct Lanes : Case<> {
  static constexpr int kLanes = 2, kCells = 2;
  static constexpr Step kStepList[] = {{kSimple, 12}, {kSimple, 8}};
};
struct LanesRounds : Lanes {
  static constexpr Step kStepList[] = {
      {kSimple, 15}, {kSimple, 3}, {kSimple, 8, true}, {kSimple, 4}, {kSimple, 16}};
};
struct LanesThreeRanks : Lanes {
  static constexpr int kRanks = 3;
};
struct LanesAgainstOne : Lanes {
  static constexpr int kLanesOfLastRank = 1;
};

TEST(Simple, TwoRanksOneEpochEveryInterleaving) { expect_holds<Exchange<OneEpoch>>(Search::full()); }
TEST(Simple, TwoRanksThreeEpochsEveryInterleavingOfFewSwitches) {
  expect_holds<Exchange<TwoRanks>>(Search::bounded(slow_tier() ? 4u : 3u));
}
TEST(Simple, LanesAgainstOneEveryInterleavingOfFewSwitches) {
  expect_holds<Exchange<LanesAgainstOne>>(Search::bounded(slow_tier() ? 1u : 0u));
}
TEST(Simple, TwoRanksSixEpochs) { expect_holds_at_random<Exchange<TwoRanksLong>>(50'000, 200'000); }
TEST(Simple, ThreeRanks) { expect_holds_at_random<Exchange<ThreeRanks>>(20'000, 100'000); }
TEST(Simple, Lanes) { expect_holds_at_random<Exchange<Lanes>>(20'000, 100'000); }
TEST(Simple, LanesRoundsOfAllSizes) { expect_holds_at_random<Exchange<LanesRounds>>(10'000, 50'000); }
TEST(Simple, LanesThreeRanks) { expect_holds_at_random<Exchange<LanesThreeRanks>>(10'000, 50'000); }

template <class Base, class S>
struct In : Base {
  using Space = S;
  template <class Memory>
  using View = exec::ModelRegion<S, Memory>;
};
struct InOneBank : TwoRanks {
  template <class Memory>
  using View = OneBank<Memory>;
};
struct WithoutSync : Lanes {
  using Coop = NoSync;
};

TEST(SimpleMutant, RelaxedFlagStoreIsFound) {
  expect_found<Exchange<In<TwoRanks, RelaxedRelease>>>(rl::test_result_data_race, 10'000);
}
TEST(SimpleMutant, RelaxedFlagLoadIsFound) {
  expect_found<Exchange<In<TwoRanks, RelaxedAcquire>>>(rl::test_result_data_race, 10'000);
}
TEST(SimpleMutant, OneBankIsFound) { expect_found<Exchange<InOneBank>>(rl::test_result_data_race, 10'000); }
TEST(SimpleMutant, NoSyncIsFound) { expect_found<Exchange<WithoutSync>>(rl::test_result_data_race, 10'000); }

}  // namespace
}  // namespace nearlight::model
