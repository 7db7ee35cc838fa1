// LL and simple take turns on one region, with a size of its own for every call. Between the reading of a
// cell and a peer's next store to it may then lie epochs of LL only, whose lines order nothing by themselves
// on the GPU ([E3]).
#include <gtest/gtest.h>

#include "tests/model/exchange.hpp"
#include "tests/model/mutants.hpp"

namespace nearlight::model {
namespace {

constexpr auto kLl = Protocol::ll;
constexpr auto kSimple = Protocol::simple;

// On the GPU: relaxed lines, and a fence wherever one kernel ends and the next begins.
struct Gpu : Case<> {
  static constexpr int kCells = 2;
  static constexpr Step kStepList[] = {{kSimple, 4}, {kLl, 2}, {kSimple, 3}, {kSimple, 8},
                                       {kLl, 1},     {kLl, 6}, {kSimple, 8}};
  static void fence_between_sessions() { Space::fence_system(); }
};
struct GpuShort : Gpu {
  static constexpr Step kStepList[] = {{kSimple, 4}, {kLl, 2}, {kSimple, 4}};
};
struct GpuThreeRanks : Gpu {
  static constexpr int kRanks = 3;
  static constexpr Step kStepList[] = {{kSimple, 4}, {kLl, 2}, {kSimple, 8}, {kLl, 4}};
};
struct GpuLanes : Gpu {
  static constexpr int kLanes = 2, kSlots = 2;
  static constexpr Step kStepList[] = {{kSimple, 8}, {kLl, 2},     {kSimple, 12},
                                       {kLl, 6},     {kSimple, 5}, {kLl, 4}};
};
struct GpuLanesHeld : GpuLanes {
  static constexpr int kHeld = 1;
};

// On the CPU: lines that order, and nothing between two calls.
template <class Base>
struct Cpu : Base {
  using Space = OrderedLines;
  template <class Memory>
  using View = exec::ModelRegion<Space, Memory>;
  static void fence_between_sessions() {}
};

TEST(Mixed, GpuEveryInterleavingOfFewSwitches) {
  expect_holds<Exchange<GpuShort>>(Search::bounded(slow_tier() ? 4u : 3u));
}
TEST(Mixed, CpuEveryInterleavingOfFewSwitches) {
  expect_holds<Exchange<Cpu<GpuShort>>>(Search::bounded(slow_tier() ? 4u : 3u));
}
TEST(Mixed, GpuTwoRanks) { expect_holds_at_random<Exchange<Gpu>>(20'000, 100'000); }
TEST(Mixed, CpuTwoRanks) { expect_holds_at_random<Exchange<Cpu<Gpu>>>(20'000, 100'000); }
TEST(Mixed, GpuThreeRanks) { expect_holds_at_random<Exchange<GpuThreeRanks>>(10'000, 50'000); }
TEST(Mixed, CpuThreeRanks) { expect_holds_at_random<Exchange<Cpu<GpuThreeRanks>>>(10'000, 50'000); }
TEST(Mixed, GpuLanes) { expect_holds_at_random<Exchange<GpuLanes>>(10'000, 50'000); }
TEST(Mixed, GpuLanesHeld) { expect_holds_at_random<Exchange<GpuLanesHeld>>(10'000, 50'000); }
TEST(Mixed, CpuLanes) { expect_holds_at_random<Exchange<Cpu<GpuLanes>>>(10'000, 50'000); }

struct NoFenceBetweenSessions : GpuShort {
  static void fence_between_sessions() {}
};

TEST(MixedMutant, RelaxedLinesWithoutFencesAreFound) {
  expect_found<Exchange<NoFenceBetweenSessions>>(rl::test_result_data_race, 10'000);
}

}  // namespace
}  // namespace nearlight::model
