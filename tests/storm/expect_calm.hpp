// A storm in which nothing goes wrong.
#pragma once

#include <gtest/gtest.h>

#include <cstdio>

#include "tests/storm/storm.hpp"

namespace nearlight::test {

inline void expect_calm(const Storm& storm) {
  std::printf("%s\n", command_line_of(storm).c_str());
  std::fflush(stdout);
  const StormOutcome outcome = run_storm(storm);
  EXPECT_EQ(outcome.problems, "");
  EXPECT_EQ(outcome.operations, storm.operations);
  EXPECT_EQ(outcome.wrong + outcome.stuck, 0u);
  EXPECT_GT(outcome.messages, storm.operations / 20);
}

}  // namespace nearlight::test
