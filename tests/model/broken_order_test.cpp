// Rung 2 of examples/ladder: the payload beside its flag.
#include <gtest/gtest.h>

#include <limits>

#include <nearlight/detail/protocol/channel.hpp>
#include "examples/ladder/broken_order.hpp"
#include "tests/model/checker.hpp"

namespace nearlight::model {
namespace {

using exec::ModelSpace;

template <bool kBroken>
struct Give : Scenario {
  static constexpr int kThreads = 2;
  static constexpr unsigned kStepLimit = 20'000;
  using Memory = exec::ModelMemory<ModelSpace, 2, 1, 1>;
  using View = exec::ModelRegion<ModelSpace, Memory>;

  Memory put_memory, flag_memory;
  protocol::RegionState<ModelSpace> put_state[2], flag_state[2];

  void before() override { exec::model_counters.restart(); }
  void thread(unsigned index) override {
    const int rank = static_cast<int>(index);
    const std::uint32_t peers = 1u << (1 - rank);
    protocol::Control<ModelSpace> control;
    control.timeout_ns = std::numeric_limits<std::uint64_t>::max();
    const exec::ModelCoop coop{0, 1, nullptr};
    protocol::PutChannel<View, exec::ModelCoop, false> puts(View(put_memory, rank), coop, put_state[rank],
                                                            control, peers, {}, 0, 0);
    protocol::MessageChannel<View, protocol::LlCarrier, exec::ModelCoop, false> flags(
        View(flag_memory, rank), coop, flag_state[rank], control, peers, {}, 1, 0);
    RL_ASSERT(ladder::give<kBroken>(puts, flags, 4711) == 4711);
  }
};

TEST(BrokenOrder, ReleaseAndAcquireHold) { expect_holds<Give<false>>(Search::bounded(3)); }
TEST(BrokenOrderMutant, AFlagThatOrdersNothingIsFound) {
  expect_found<Give<true>>(rl::test_result_data_race, 1'000);
}

}  // namespace
}  // namespace nearlight::model
