// The flag barrier: what is written before it is read after it, by every rank.
#include <gtest/gtest.h>

#include <nearlight/detail/protocol/barrier.hpp>
#include "tests/model/checker.hpp"
#include "tests/model/mutants.hpp"

namespace nearlight::model {
namespace {

// In every round each lane of each rank writes a cell of its own, plain, goes through the barrier, reads what
// the others wrote, and goes through another one before it writes again.
template <class S, class CoopT, int ranks, int lanes, template <class> class ViewOf>
struct Rounds : Scenario {
  static constexpr int kThreads = ranks * lanes;
  static constexpr unsigned kStepLimit = 20'000;
  static constexpr int kRounds = 2;
  using Memory = exec::ModelMemory<S, ranks, 0, 0>;
  using View = ViewOf<Memory>;

  Memory memory;
  protocol::RegionState<S> state[ranks];
  exec::ModelBarrier group[ranks];
  rl::var<int> written[kThreads];

  void before() override {
    exec::model_counters.restart();
    for (auto& one : written) one(RL_INFO).store(0);
  }
  void thread(unsigned index) override {
    const int rank = static_cast<int>(index) / lanes, lane = static_cast<int>(index) % lanes;
    protocol::Control<S> control;
    control.timeout_ns = ~std::uint64_t{0};
    protocol::Session session(View(memory, rank), CoopT{lane, lanes, &group[rank]}, state[rank], control, 0,
                              0);
    for (int round = 1; round <= kRounds; ++round) {
      written[index](RL_INFO).store(round);
      protocol::flag_barrier(session);
      for (auto& one : written) RL_ASSERT(one(RL_INFO).load() == round);
      protocol::flag_barrier(session);
    }
    session.close();
  }
};

template <class Memory>
using Plain = exec::ModelRegion<ModelSpace, Memory>;
template <class Memory>
using Relaxed = exec::ModelRegion<RelaxedRelease, Memory>;
template <class Memory>
using NotAcquired = exec::ModelRegion<RelaxedAcquire, Memory>;
using exec::ModelCoop;

TEST(Barrier, TwoRanksEveryInterleavingOfFewSwitches) {
  expect_holds<Rounds<ModelSpace, ModelCoop, 2, 1, Plain>>(Search::bounded(slow_tier() ? 4u : 3u));
}
TEST(Barrier, TwoRanks) {
  expect_holds_at_random<Rounds<ModelSpace, ModelCoop, 2, 1, Plain>>(20'000, 200'000);
}
TEST(Barrier, ThreeRanks) {
  expect_holds_at_random<Rounds<ModelSpace, ModelCoop, 3, 1, Plain>>(10'000, 100'000);
}
TEST(Barrier, TwoRanksOfTwoLanes) {
  expect_holds_at_random<Rounds<ModelSpace, ModelCoop, 2, 2, Plain>>(10'000, 100'000);
}

TEST(BarrierMutant, RelaxedFlagStoreIsFound) {
  expect_found<Rounds<RelaxedRelease, ModelCoop, 2, 1, Relaxed>>(rl::test_result_data_race, 10'000);
}
TEST(BarrierMutant, RelaxedFlagLoadIsFound) {
  expect_found<Rounds<RelaxedAcquire, ModelCoop, 2, 1, NotAcquired>>(rl::test_result_data_race, 10'000);
}
TEST(BarrierMutant, NoSyncIsFound) {
  expect_found<Rounds<ModelSpace, NoSync, 2, 2, Plain>>(rl::test_result_user_assert_failed, 10'000);
}

}  // namespace
}  // namespace nearlight::model
