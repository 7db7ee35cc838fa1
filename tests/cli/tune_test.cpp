// What `nearlight tune` makes of measurements.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "cli/tune/crossover.hpp"
#include "route/table.hpp"

namespace nearlight::tune {
namespace {

using testing::ElementsAre;

constexpr Way kLl{}, kOther{route::Algorithm::one_shot, route::Protocol::simple};
const Crossover kLimit{"ll_limit_bytes", &route::Table::ll_limit_bytes, Counts::sent, false, kLl, kOther};
const Crossover kFirst{
    "sentinel_first_bytes", &route::Table::sentinel_first_bytes, Counts::sent, true, kLl, kOther};

// Sizes 16, 32, 48, ...: times of `below` against 10 us of `above`.
std::vector<Point> points(std::initializer_list<double> below_us, double noise_us = 0) {
  std::vector<Point> all;
  for (const double us : below_us) all.push_back({16 * (all.size() + 1), {us, noise_us}, {10, noise_us}});
  return all;
}

TEST(Refine, AGoodLimitStays) {
  const Refined refined = refine(kLimit, 32, 2, points({8, 9, 11, 12}));
  EXPECT_EQ(refined.value, 32u);
  EXPECT_EQ(refined.moved, 0u);
}

TEST(Refine, ALimitMovesUpOverAllSizesThatGain) {
  const Refined refined = refine(kLimit, 32, 2, points({8, 9, 8, 9, 11}));
  EXPECT_EQ(refined.value, 64u);
  EXPECT_EQ(refined.moved, 2u);
  EXPECT_DOUBLE_EQ(refined.most_gain, 0.2);
  EXPECT_NEAR(refined.mean_gain, 0.15, 1e-12);
  EXPECT_DOUBLE_EQ(refined.most_noise, kLeastNoise);
  EXPECT_FALSE(refined.at_the_edge);
}

TEST(Refine, ALimitMovesDown) {
  const Refined refined = refine(kLimit, 64, 2, points({8, 12.5, 20, 12.5, 11}));
  EXPECT_EQ(refined.value, 16u);
  EXPECT_EQ(refined.moved, 3u);
  EXPECT_DOUBLE_EQ(refined.most_gain, 0.5);
}

TEST(Refine, WhatIsWithinNoiseMovesNothing) {
  // 10 percent, and each of the two might be off by 6 of them.
  EXPECT_EQ(refine(kLimit, 32, 2, points({8, 8, 9, 9}, 0.6)).value, 32u);
  EXPECT_EQ(refine(kLimit, 32, 2, points({8, 8, 9, 9}, 0.4)).value, 64u);
  EXPECT_EQ(refine(kLimit, 64, 2, points({8, 11.1, 11.1, 11.1}, 0.6)).value, 64u);
  // Hardly any noise, and hardly any gain.
  EXPECT_EQ(refine(kLimit, 32, 2, points({8, 8, 9.9, 9.9}, 0.001)).value, 32u);
}

// A size in between that gains nothing ends the move, however much lies behind it.
TEST(Refine, NoSizeIsSkipped) {
  EXPECT_EQ(refine(kLimit, 32, 2, points({8, 8, 10, 2, 2})).value, 32u);
  EXPECT_EQ(refine(kLimit, 64, 2, points({20, 20, 10, 9})).value, 64u);
}

TEST(Refine, TheFirstSizeOfTheUpperProtocol) {
  EXPECT_EQ(refine(kFirst, 32, 2, points({8, 11, 11, 11})).value, 32u);
  EXPECT_EQ(refine(kFirst, 32, 2, points({8, 8, 8, 11})).value, 64u);
  EXPECT_EQ(refine(kFirst, 64, 2, points({8, 12, 12, 12})).value, 32u);
}

TEST(Refine, BeyondTheEdgeIsOnlyTheNextNumber) {
  EXPECT_EQ(refine(kLimit, 32, 2, points({20, 20, 20})).value, 15u);
  EXPECT_EQ(refine(kLimit, 32, 2, points({5, 5, 5})).value, 48u);
  EXPECT_EQ(refine(kFirst, 32, 2, points({20, 20, 20})).value, 16u);
  EXPECT_EQ(refine(kFirst, 32, 2, points({5, 5, 5})).value, 49u);
  EXPECT_TRUE(refine(kLimit, 32, 2, points({20, 20, 20})).at_the_edge);
  EXPECT_EQ(refine(kLimit, 32, 2, {}).value, 32u);
}

// What two-shot saves of four ranks is 1.5 times the message.
TEST(Refine, NumbersOfWhatIsSaved) {
  const Crossover saved{
      "two_shot_gain_bytes", &route::Table::two_shot_gain_bytes, Counts::saved, true, kLl, kOther};
  EXPECT_EQ(refine(saved, 48, 4, points({8, 11, 11, 11})).value, 48u);
  EXPECT_EQ(refine(saved, 48, 4, points({8, 8, 8, 11})).value, 96u);
  EXPECT_EQ(message_of(96, Counts::saved, 4), 64u);
}

// The number counts what a rank sends to all others.
TEST(Refine, NumbersAreOfAllOtherRanks) {
  EXPECT_EQ(refine(kLimit, 32 * 3, 4, points({8, 9, 8, 11})).value, 48u * 3);
  EXPECT_EQ(refine(kFirst, 32 * 3, 4, points({8, 8, 8, 11})).value, 64u * 3);
}

TEST(SizesAround, HoldTheNumberItself) {
  EXPECT_THAT(sizes_around(16 * 1024),
              ElementsAre(4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152, 65536));
  EXPECT_THAT(sizes_around(4096), ElementsAre(1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384));
  EXPECT_THAT(sizes_around(8 << 20),
              ElementsAre(2 << 20, 3 << 20, 4 << 20, 6 << 20, 8 << 20, 12 << 20, 16 << 20));
  EXPECT_THAT(sizes_around(32), ElementsAre(8, 16, 24, 32, 48, 64, 96, 128));
  EXPECT_THAT(sizes_around(7), ElementsAre(8, 16, 24));
  for (const std::uint64_t value : {std::uint64_t{0}, std::uint64_t{1} << 30}) {
    EXPECT_GE(sizes_around(value).size(), 3u);
  }
}

TEST(TimingOf, TheMedianAndHowFarStretchesLieApart) {
  const std::vector<double> even(1000, 2.0);
  EXPECT_EQ(timing_of(even).us, 2.0);
  EXPECT_NEAR(timing_of(even).noise_us, 0, 1e-9);
  // Single slow ones say nothing.
  std::vector<double> spikes = even;
  for (std::size_t i = 0; i < spikes.size(); i += 50) spikes[i] = 500;
  EXPECT_NEAR(timing_of(spikes).noise_us, 0, 1e-9);
  // A machine that was slow for half of the time.
  std::vector<double> slow = even;
  for (std::size_t i = 500; i < slow.size(); ++i) slow[i] = 4;
  EXPECT_NEAR(timing_of(slow).noise_us, 2.26 * std::sqrt(10.0 / 9 / 10), 1e-9);
  // One sample may be anything.
  EXPECT_EQ(timing_of(std::vector<double>{3}).noise_us, 3);
}

// Calls f(gpu, nranks, crossover).
template <class F>
void for_all(F f) {
  for (const bool gpu : {false, true}) {
    for (int nranks = 2; nranks <= 8; ++nranks) {
      for (const Crossover& crossover : crossovers_of(gpu, nranks)) f(gpu, nranks, crossover);
    }
  }
}

TEST(Crossovers, AreNumbersOfTheTable) {
  for_all([](bool gpu, int, const Crossover& crossover) {
    bool found = false;
    for (const route::TableField& field : route::fields_of(gpu)) {
      found |= field.value == crossover.number && std::string(field.name) == crossover.field;
    }
    EXPECT_TRUE(found) << crossover.field;
    for (const Way& way : {crossover.below, crossover.above}) {
      EXPECT_TRUE(algorithm::carries(way.protocol, crossover.type));
      EXPECT_TRUE(algorithm::go_together(way.algorithm, way.protocol));
    }
  });
}

// The messages that are measured are those that the number decides about.
TEST(Crossovers, DecideAboutTheMessagesThatAreMeasured) {
  for_all([](bool gpu, int nranks, const Crossover& crossover) {
    const route::Target target{gpu, route::kMeasuredGpu, nranks};
    const route::Table shipped = route::shipped_table(target);
    const auto way_at = [&](std::uint64_t bytes) {
      route::Facts facts;
      facts.gpu = gpu;
      facts.nranks = nranks;
      facts.count = bytes / size_of(crossover.type);
      facts.type = crossover.type;
      facts.regions = 128;
      facts.slots = 2048;
      facts.cells = 4096;
      facts.packets = route::packets_for(shipped, nranks, 128);
      facts.table = &shipped;
      const route::Route route = route::all_reduce(facts);
      return name_of(Way{route.algorithm, route.protocol});
    };
    const std::uint64_t border = message_of(shipped.*crossover.number, crossover.counts, nranks);
    EXPECT_EQ(way_at(border - 8), name_of(crossover.below)) << crossover.field << ", " << nranks;
    EXPECT_EQ(way_at(border + 64), name_of(crossover.above)) << crossover.field << ", " << nranks;
    // There and back again, but for what a division leaves.
    const std::uint64_t back =
        message_of(value_of(1 << 20, crossover.counts, nranks), crossover.counts, nranks);
    EXPECT_LE(back, 1u << 20);
    EXPECT_GE(back, (1u << 20) - 1);
  });
}

}  // namespace
}  // namespace nearlight::tune
