#include "tests/support/stuck.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <memory>
#include <thread>

namespace nearlight::test {
namespace {

using std::chrono::milliseconds;

// Each in a process of its own, which it ends; nobody there deletes the watch.
TEST(StuckDeathTest, WhatDoesNotEndTellsWhereItsThreadsAre) {
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  EXPECT_EXIT(
      {
        StuckWatch& watch = *std::make_unique<StuckWatch>(milliseconds(200)).release();
        watch.begin("this one");
        std::thread other([] { std::this_thread::sleep_for(std::chrono::hours(1)); });
        other.join();
      },
      testing::ExitedWithCode(kStuckExit), "this one has not ended in 200 ms.*\n-- thread .*\n-- thread ");
}

TEST(StuckDeathTest, WhatEndsInTimeIsLeftAlone) {
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  EXPECT_EXIT(
      {
        StuckWatch& watch = *std::make_unique<StuckWatch>(milliseconds(200)).release();
        watch.begin("this one");
        watch.end();
        std::this_thread::sleep_for(milliseconds(600));  // nothing is on
        std::exit(0);
      },
      testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace nearlight::test
