// Ranks that are killed or stopped, in a few seconds; kill_slow_test.cpp goes on for minutes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/storm/kill_trials.hpp"
#include "tests/support/held.hpp"

namespace nearlight::test {
namespace {

TEST(KillTrials, SurvivorsNameTheVictimInTime) {
  const Held before = Held::now();
  const KillOutcome outcome = run_kill_trials({.seed = 1, .trials = 40});
  std::printf("%s\n", outcome.to_string().c_str());
  EXPECT_EQ(outcome.problems, "");
  EXPECT_EQ(outcome.trials, 40);
  EXPECT_GT(outcome.killed, 10);
  EXPECT_GT(outcome.stopped, 5);
  EXPECT_GT(outcome.in_meeting, 0);
  EXPECT_GT(outcome.in_creation, 0);
  EXPECT_GT(outcome.in_calls, 0);
  Problems left;
  expect_same(before, {}, left);
  EXPECT_EQ(left.text(), "");
}

TEST(KillTrials, ASurvivorThatNamesAnotherIsFound) {
  const KillOutcome outcome = run_kill_trials({.seed = 1, .trials = 20, .name_another = true});
  EXPECT_THAT(outcome.problems, testing::HasSubstr("seed "));
  EXPECT_THAT(outcome.problems, testing::AnyOf(testing::HasSubstr("the victim is not named"),
                                               testing::HasSubstr("no survivor names the victim")));
}

}  // namespace
}  // namespace nearlight::test
