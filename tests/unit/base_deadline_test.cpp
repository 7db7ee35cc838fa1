#include <gtest/gtest.h>

#include <thread>

#include "base/deadline.hpp"

namespace nearlight {
namespace {

using namespace std::chrono_literals;

TEST(Deadline, CountsDown) {
  const Deadline far = Deadline::after(1h);
  EXPECT_FALSE(far.passed());
  EXPECT_GT(far.left(), 59min);
  EXPECT_LE(far.left(), 1h);
  EXPECT_GT(far.left_ms(), 59 * 60 * 1000);
}

TEST(Deadline, IsPassedAtOnceWithoutTime) {
  for (const Deadline& past : {Deadline::after(0s), Deadline::after_ms(0), Deadline::after_ms(-5)}) {
    EXPECT_TRUE(past.passed());
    EXPECT_EQ(past.left(), 0ns);
    EXPECT_EQ(past.left_ms(), 0);
  }
}

// A wait of 0 ms would be no wait at all while there is still time.
TEST(Deadline, LeavesAtLeastAMillisecondWhileTimeIsLeft) {
  for (int i = 0; i < 200; ++i) {
    const Deadline soon = Deadline::after(1ms);
    const int ms = soon.left_ms();
    if (!soon.passed()) {
      EXPECT_GE(ms, 1);
    }
  }
  const Deadline soon = Deadline::after(2ms);
  std::this_thread::sleep_for(3ms);
  EXPECT_TRUE(soon.passed());
}

TEST(Deadline, FarAwayFitsTheMillisecondsOfPoll) { EXPECT_EQ(Deadline::after(24h * 365).left_ms(), 1 << 30); }

}  // namespace
}  // namespace nearlight
