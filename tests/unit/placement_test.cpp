#include "route/placement.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace nearlight::route {
namespace {

using algorithm::Protocol;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(Placement, CandidatesLeaveRoomForTheOtherCtas) {
  EXPECT_THAT(candidates(4, 1, 24), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(candidates(9, 8, 24), ElementsAre(0, 1));
  EXPECT_THAT(candidates(8, 8, 24), ElementsAre(0));
  EXPECT_THAT(candidates(7, 8, 24), IsEmpty());
  EXPECT_THAT(candidates(101, 1, 5), ElementsAre(0, 25, 50, 75, 100));
  EXPECT_THAT(candidates(128, 8, 1), ElementsAre(0));
  EXPECT_THAT(candidates(128, 8, 0), IsEmpty());
}

TEST(Placement, KeepsTheFastest) {
  Placement placement;
  const std::vector<std::uint32_t> tried = {0, 40, 80};
  placement.enter(1, tried, std::vector<float>{1.5f, 1.25f, 1.75f});
  ASSERT_EQ(kSlotKinds[1].protocol, Protocol::ll);
  EXPECT_EQ(placement.first_region(Protocol::ll, kSlotKinds[1].grid), 40u);
  EXPECT_EQ(placement.first_region(Protocol::ll, kSlotKinds[0].grid + 1), 40u);
  // Other kinds are not concerned: fewer CTAs, more, other protocols.
  EXPECT_EQ(placement.first_region(Protocol::ll, kSlotKinds[0].grid), 0u);
  EXPECT_EQ(placement.first_region(Protocol::ll, kSlotKinds[1].grid + 1), 0u);
  EXPECT_EQ(placement.first_region(Protocol::sentinel, 2), 0u);
  EXPECT_EQ(placement.first_region(Protocol::simple, 1), 0u);
  EXPECT_EQ(placement.in_words(), "ll, 4 CTAs: region 40, 1.250 us (median 1.500, worst 1.750)");
}

TEST(Placement, WhatWasNotMeasuredSaysWhy) {
  EXPECT_EQ(Placement().in_words(), "not measured: not asked for");
  EXPECT_EQ(Placement("a rank came too late").in_words(), "not measured: a rank came too late");
  Placement placement("nothing");
  placement.enter(0, {}, {});
  EXPECT_THAT(placement.in_words(), HasSubstr("nothing"));
}

// Whoever asks with a number of CTAs that a kind stands for gets a region that the candidates of that kind
// left room after.
TEST(Placement, KindsOfAProtocolGrow) {
  for (std::size_t kind = 1; kind < kSlotKindCount; ++kind) {
    if (kSlotKinds[kind].protocol == kSlotKinds[kind - 1].protocol) {
      EXPECT_GT(kSlotKinds[kind].grid, kSlotKinds[kind - 1].grid);
    }
    EXPECT_EQ(kSlotKinds[kind].bytes, kSlotKinds[kind].grid * kSlotKinds[kind].threads *
                                          (kSlotKinds[kind].protocol == Protocol::ll ? 8 : 16));
  }
}

}  // namespace
}  // namespace nearlight::route
