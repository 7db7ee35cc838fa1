// The storm in a few seconds, and that it sees what goes wrong. `--seed N ...` runs one by hand.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/storm/expect_calm.hpp"
#include "tests/support/spawned.hpp"

namespace nearlight::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr std::uint64_t kOperations = kSlowDown == 1 ? 5000 : 1500;

TEST(Storm, Threads) { expect_calm({.seed = 1, .operations = kOperations, .kind = Kind::threads}); }

#if !defined(__SANITIZE_THREAD__)
TEST(Storm, Processes) { expect_calm({.seed = 1001, .operations = kOperations, .kind = Kind::processes}); }
#endif

// Every number of ranks, also those that the seeds seldom choose.
TEST(Storm, EveryNumberOfRanks) {
  for (int nranks = 1; nranks <= 8; ++nranks) {
    expect_calm({.seed = 2000 + static_cast<std::uint64_t>(nranks),
                 .operations = 200 / kSlowDown,
                 .nranks = nranks,
                 .kind = Kind::threads});
  }
}

// With what must be said about it: the operation, and how to run the group again.
StormOutcome expect_found(const Storm& storm) {
  const StormOutcome outcome = run_storm(storm);
  EXPECT_THAT(outcome.problems,
              AllOf(HasSubstr("again: --seed " + std::to_string(storm.seed)),
                    HasSubstr("--ranks 3 --kind threads"), HasSubstr("that was operation")));
  return outcome;
}

TEST(StormMutant, AnotherInputIsFound) {
  const auto outcome = expect_found(
      {.seed = 4, .operations = 100, .nranks = 3, .kind = Kind::threads, .plant = Storm::Plant::other_input});
  EXPECT_GT(outcome.wrong, 0u);
  EXPECT_THAT(outcome.problems, HasSubstr(", expected "));
}

TEST(StormMutant, OtherMessagesAreFound) {
  const auto outcome = expect_found(
      {.seed = 7, .operations = 100, .nranks = 3, .kind = Kind::threads, .plant = Storm::Plant::other_bytes});
  EXPECT_GT(outcome.wrong, 0u);
  EXPECT_THAT(outcome.problems, HasSubstr(" instead of "));
}

// By every seed, that is by whatever protocol and algorithm it hits.
TEST(StormMutant, BitsThatChangeOnTheWayAreFound) {
  for (std::uint64_t seed = 10; seed < 13; ++seed) {
    const auto outcome = expect_found(
        {.seed = seed, .operations = 200, .nranks = 3, .kind = Kind::threads, .plant = Storm::Plant::spoilt});
    EXPECT_GT(outcome.wrong, 0u);
  }
}

TEST(StormMutant, WhatIsLostOnTheWayIsFound) {
  for (std::uint64_t seed = 20; seed < 24; ++seed) {
    const auto outcome = expect_found(
        {.seed = seed, .operations = 200, .nranks = 3, .kind = Kind::threads, .plant = Storm::Plant::lost});
    EXPECT_GT(outcome.wrong + outcome.stuck, 0u);
  }
}

TEST(StormMutant, ABarrierThatDoesNotWaitIsFound) {
  const auto outcome = expect_found(
      {.seed = 5, .operations = 100, .nranks = 3, .kind = Kind::threads, .plant = Storm::Plant::no_barrier});
  EXPECT_GT(outcome.wrong, 0u);
  EXPECT_THAT(outcome.problems, HasSubstr("rank 2 had not come"));
}

TEST(StormMutant, ARankThatStaysAwayIsFound) {
  const auto outcome = expect_found(
      {.seed = 6, .operations = 60, .nranks = 3, .kind = Kind::threads, .plant = Storm::Plant::stays_away});
  EXPECT_GT(outcome.stuck, 0u);
  EXPECT_THAT(outcome.problems, HasSubstr("nothing from rank 2 within 300 ms"));
}

TEST(StormProgram, RunsWhatItIsTold) {
  Spawned good({own_program(), "--seed", "77", "--operations", "300", "--ranks", "2"}, {});
  EXPECT_EQ(good.wait(), 0) << good.output();
  EXPECT_THAT(good.output(), AllOf(HasSubstr("--seed 77 --operations 300 --ranks 2 --kind threads"),
                                   HasSubstr("300 operations, 0 wrong, 0 stuck")));
  for (const auto& words : {std::vector<std::string>{"--seed", "x"},
                            {"--seed"},
                            {"--seed", "1", "--ranks", "9"},
                            {"--seed", "1", "--kind", "met"},
                            {"--seed", "1", "--speed", "2"}}) {
    std::vector<std::string> all = {own_program()};
    all.insert(all.end(), words.begin(), words.end());
    Spawned bad(all, {});
    EXPECT_EQ(bad.wait(), 2) << bad.output();
  }
}

}  // namespace
}  // namespace nearlight::test

int main(int argc, char** argv) {
  if (argc > 1 && std::string(argv[1]) == "--seed") return nearlight::test::storm_main(argc, argv);
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
