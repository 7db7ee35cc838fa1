#include "runtime/early_launch.hpp"

#include <gtest/gtest.h>

#include <optional>
#include <utility>

namespace nearlight::runtime {
namespace {

constexpr int kDevice = 1000, kOther = 1001;

TEST(EarlyLaunch, IsTheFirstOnesOfADeviceForAsLongAsItLives) {
  std::optional<EarlyLaunch> first(std::in_place, std::nullopt, kDevice, true);
  EXPECT_TRUE(first->is_on());
  EXPECT_FALSE(EarlyLaunch(std::nullopt, kDevice, true).is_on());
  EXPECT_TRUE(EarlyLaunch(std::nullopt, kOther, true).is_on());
  const EarlyLaunch second(std::nullopt, kDevice, true);
  first.reset();
  EXPECT_FALSE(second.is_on());
  EXPECT_TRUE(EarlyLaunch(std::nullopt, kDevice, true).is_on());
}

TEST(EarlyLaunch, IsNobodysWhereRanksShareADevice) {
  EXPECT_FALSE(EarlyLaunch(std::nullopt, kDevice, false).is_on());
  EXPECT_FALSE(EarlyLaunch().is_on());
}

TEST(EarlyLaunch, WhatIsAskedForIsDoneAndCounted) {
  const EarlyLaunch asked(true, kDevice, false);
  EXPECT_TRUE(asked.is_on());
  EXPECT_TRUE(EarlyLaunch(true, kDevice, true).is_on());
  EXPECT_FALSE(EarlyLaunch(std::nullopt, kDevice, true).is_on());
  EXPECT_FALSE(EarlyLaunch(false, kOther, true).is_on());
}

TEST(EarlyLaunch, MovesWithItsCount) {
  EarlyLaunch first(std::nullopt, kDevice, true);
  EarlyLaunch holder = std::move(first);
  EXPECT_TRUE(holder.is_on());
  EXPECT_FALSE(first.is_on());  // NOLINT: what is left is a value
  holder = EarlyLaunch();
  EarlyLaunch next(std::nullopt, kDevice, true);
  EXPECT_TRUE(next.is_on());
  EarlyLaunch& same = next;
  next = std::move(same);
  EXPECT_TRUE(next.is_on());
}

}  // namespace
}  // namespace nearlight::runtime
