// Bounded waits: a rank that stops, ranks that are slow, the abort word; what is recorded, and what goes on.
#include <gtest/gtest.h>

#include "tests/model/failing.hpp"
#include "tests/model/mutants.hpp"

namespace nearlight::model {
namespace {

constexpr auto kLl = Protocol::ll;
constexpr auto kSimple = Protocol::simple;

// Rank 0 stops after two epochs: the others miss it in the third, where they still see its first.
struct LlStops : FailingCase {
  static constexpr int kDeadRank = 0, kDeadStep = 2, kWatchedRank = 1;
  static constexpr bool kExact = true;
  static constexpr std::uint32_t kSeen = 1;
  static constexpr Step kStepList[] = {{kLl, 2}, {kLl, 2}, {kLl, 2}, {kLl, 2}, {kLl, 2, true}};
};
struct LlStopsHeld : LlStops {
  static constexpr int kHeld = 1;
};
struct LlStopsThreeRanks : LlStops {
  static constexpr int kRanks = 3, kWatchedRank = 2;
};
struct SimpleStops : LlStops {
  static constexpr Step kStepList[] = {
      {kSimple, 4}, {kSimple, 4}, {kSimple, 4}, {kSimple, 4}, {kSimple, 4, true}};
};
struct SimpleStopsThreeRanks : SimpleStops {
  static constexpr int kRanks = 3, kWatchedRank = 2;
};
// Two lanes miss the same rank: one record.
struct LlStopsLanes : LlStops {
  static constexpr int kLanes = 2, kSlots = 2;
  static constexpr bool kExact = false;  // either slot may be the first
  static constexpr Step kStepList[] = {{kLl, 4}, {kLl, 4}, {kLl, 4}, {kLl, 4, true}, {kLl, 4}};
};
struct LlNeverBegins : LlStops {
  static constexpr int kDeadStep = 0;
  static constexpr std::uint32_t kSeen = 0;
  static constexpr Step kStepList[] = {{kLl, 2}, {kLl, 2}};
};
struct SimpleNeverBegins : LlNeverBegins {
  static constexpr Step kStepList[] = {{kSimple, 4}, {kSimple, 4}};
};

TEST(Fault, LlNeverBeginsEveryInterleavingOfFewSwitches) {
  expect_holds<Failing<LlNeverBegins>>(Search::bounded(slow_tier() ? 2u : 1u));
}
TEST(Fault, SimpleNeverBeginsEveryInterleavingOfFewSwitches) {
  expect_holds<Failing<SimpleNeverBegins>>(Search::bounded(slow_tier() ? 2u : 1u));
}
TEST(Fault, LlStops) { expect_holds_at_random<Failing<LlStops>>(2'000, 20'000); }
TEST(Fault, LlStopsHeld) { expect_holds_at_random<Failing<LlStopsHeld>>(2'000, 20'000); }
TEST(Fault, LlStopsThreeRanks) { expect_holds_at_random<Failing<LlStopsThreeRanks>>(2'000, 20'000); }
TEST(Fault, LlStopsLanes) { expect_holds_at_random<Failing<LlStopsLanes>>(1'000, 10'000); }
TEST(Fault, SimpleStops) { expect_holds_at_random<Failing<SimpleStops>>(2'000, 20'000); }
TEST(Fault, SimpleStopsThreeRanks) { expect_holds_at_random<Failing<SimpleStopsThreeRanks>>(2'000, 20'000); }

// Rank 0 never begins and time never runs out: only the abort word ends the wait.
struct LlAborted : LlNeverBegins {
  static constexpr int kAbortedRank = 1;
  static constexpr auto kKind = protocol::Wait::aborted;
  static constexpr std::uint64_t kPatience = ~std::uint64_t{0};
};
struct SimpleAborted : LlAborted {
  static constexpr Step kStepList[] = {{kSimple, 4}, {kSimple, 4}};
};

TEST(Fault, LlAborted) { expect_holds_at_random<Failing<LlAborted>>(10'000, 50'000); }
TEST(Fault, SimpleAborted) { expect_holds_at_random<Failing<SimpleAborted>>(10'000, 50'000); }

// Nobody stops, but patience is so short that any rank may give up at any time, while its peers still get on.
struct LlImpatient : FailingCase {
  static constexpr int kRanks = 3, kSlots = 2;
  static constexpr std::uint64_t kPatience = 3;
  static constexpr Step kStepList[] = {{kLl, 4}, {kLl, 2}, {kLl, 6, true}, {kLl, 4}};
};
struct LlImpatientLanes : LlImpatient {
  static constexpr int kLanes = 2;
};
struct LlImpatientLanesHeld : LlImpatientLanes {
  static constexpr int kHeld = 1;
};
struct LlImpatientLockstep : LlImpatientLanesHeld {
  using Space = LockstepPairs;
  template <class Memory>
  using View = exec::ModelRegion<Space, Memory>;
};
struct SimpleImpatient : LlImpatient {
  static constexpr int kCells = 2;
  static constexpr Step kStepList[] = {{kSimple, 8}, {kSimple, 4}, {kSimple, 12, true}, {kSimple, 8}};
};
struct SimpleImpatientLanes : SimpleImpatient {
  static constexpr int kLanes = 2;
};
struct SimpleImpatientLanesVoting : SimpleImpatientLanes {
  using Coop = exec::ModelVotingCoop;
};

TEST(Fault, LlImpatient) { expect_holds_at_random<Failing<LlImpatient>>(10'000, 50'000); }
TEST(Fault, LlImpatientLanes) { expect_holds_at_random<Failing<LlImpatientLanes>>(5'000, 20'000); }
TEST(Fault, LlImpatientLanesHeld) { expect_holds_at_random<Failing<LlImpatientLanesHeld>>(5'000, 20'000); }
TEST(Fault, LlImpatientLockstep) { expect_holds_at_random<Failing<LlImpatientLockstep>>(5'000, 20'000); }
TEST(Fault, SimpleImpatient) { expect_holds_at_random<Failing<SimpleImpatient>>(10'000, 50'000); }
TEST(Fault, SimpleImpatientLanes) { expect_holds_at_random<Failing<SimpleImpatientLanes>>(5'000, 20'000); }
TEST(Fault, SimpleImpatientLanesVoting) {
  expect_holds_at_random<Failing<SimpleImpatientLanesVoting>>(5'000, 20'000);
}

template <class Base, class S>
struct In : Base {
  using Space = S;
  template <class Memory>
  using View = exec::ModelRegion<S, Memory>;
};
struct SimpleImpatientNoVote : SimpleImpatientLanes {
  using Coop = NoVote;
};

TEST(FaultMutant, WaitWithoutEndIsFound) {
  expect_found<Failing<In<LlStops, StoppedClock>>>(rl::test_result_livelock, 100);
}
TEST(FaultMutant, DeafToAbortIsFound) {
  expect_found<Failing<In<LlAborted, DeafToAbort>>>(rl::test_result_livelock, 100);
}
TEST(FaultMutant, RecordPublishedWithoutReleaseIsFound) {
  expect_found<Failing<In<LlStops, RelaxedRelease>>>(rl::test_result_data_race, 10'000);
}
TEST(FaultMutant, RecordReadWithoutAcquireIsFound) {
  expect_found<Failing<In<LlStops, RelaxedAcquire>>>(rl::test_result_data_race, 10'000);
}
TEST(FaultMutant, SecondRecordIsFound) {
  expect_found<Failing<In<LlStopsLanes, EveryoneIsFirst>>>(rl::test_result_data_race, 10'000);
}
TEST(FaultMutant, FailureKeptFromTheGroupIsFound) {
  expect_found<Failing<SimpleImpatientNoVote>>(rl::test_result_data_race, 10'000);
}

}  // namespace
}  // namespace nearlight::model
