// Ranks that are killed or stopped, a thousand times.
#include <gtest/gtest.h>

#include "tests/storm/kill_trials.hpp"
#include "tests/support/held.hpp"

namespace nearlight::test {
namespace {

TEST(ManyKillTrials, SurvivorsNameTheVictimInTime) {
  const Held before = Held::now();
  const KillOutcome outcome = run_kill_trials({.seed = 10'000, .trials = 1000});
  std::printf("%s\n", outcome.to_string().c_str());
  EXPECT_EQ(outcome.problems, "");
  EXPECT_EQ(outcome.trials, 1000);
  EXPECT_GT(outcome.in_meeting, 100);
  EXPECT_GT(outcome.in_creation, 100);
  EXPECT_GT(outcome.in_calls, 100);
  Problems left;
  expect_same(before, {}, left);
  EXPECT_EQ(left.text(), "");
}

}  // namespace
}  // namespace nearlight::test
