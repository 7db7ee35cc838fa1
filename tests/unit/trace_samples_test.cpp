#include "trace/samples.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

namespace nearlight::trace {
namespace {

// 1, 2, ..., n in some other order.
Samples counted(int n) {
  std::vector<int> values(static_cast<std::size_t>(n));
  std::iota(values.begin(), values.end(), 1);
  std::shuffle(values.begin(), values.end(), std::mt19937(7));
  Samples samples;
  for (const int value : values) samples.add_us(value);
  return samples;
}

TEST(Samples, PercentilesAreNearestRanks) {
  const auto summary = counted(100).summary();
  ASSERT_TRUE(summary.ok());
  EXPECT_EQ(summary->count, 100u);
  EXPECT_EQ(summary->min_us, 1);
  EXPECT_EQ(summary->p50_us, 50);  // not 50.5: a value that was measured
  EXPECT_EQ(summary->p95_us, 95);
  EXPECT_EQ(summary->p99_us, 99);
  EXPECT_EQ(summary->max_us, 100);
  EXPECT_DOUBLE_EQ(summary->mean_us, 50.5);
}

TEST(Samples, OneSampleIsEverything) {
  Samples samples;
  samples.add_us(2.5);
  const auto summary = samples.summary();
  ASSERT_TRUE(summary.ok());
  for (const double value : {summary->min_us, summary->p50_us, summary->p95_us, summary->p99_us,
                             summary->max_us, summary->mean_us}) {
    EXPECT_EQ(value, 2.5);
  }
  EXPECT_FALSE(summary->p999_us.has_value());
}

TEST(Samples, TwoSamplesHaveTheSmallerAsMedian) {
  Samples samples;
  samples.add_us(9);
  samples.add_us(4);
  EXPECT_EQ(samples.summary()->p50_us, 4);
  EXPECT_EQ(samples.summary()->p95_us, 9);
}

TEST(Samples, P999NeedsTenThousandSamples) {
  EXPECT_FALSE(counted(9'999).summary()->p999_us.has_value());
  const auto summary = counted(10'000).summary();
  ASSERT_TRUE(summary->p999_us.has_value());
  EXPECT_EQ(*summary->p999_us, 9'990);  // 10 samples lie above
  EXPECT_EQ(summary->p99_us, 9'900);
}

TEST(Samples, RanksAreExactWhereThePercentageIsNotRepresentable) {
  for (const int count : {1'000, 10'000, 20'000, 50'000, 70'000, 1'000'000}) {
    std::vector<double> sorted(static_cast<std::size_t>(count));
    std::iota(sorted.begin(), sorted.end(), 1.0);
    EXPECT_EQ(nearest_rank(sorted, 99.9), count / 1000 * 999) << count;
    EXPECT_EQ(nearest_rank(sorted, 99), count / 100 * 99) << count;
    EXPECT_EQ(nearest_rank(sorted, 100), count) << count;
  }
}

TEST(Samples, NanosecondsBecomeMicroseconds) {
  Samples samples;
  samples.add_ns(1'500);
  EXPECT_DOUBLE_EQ(samples.values_us()[0], 1.5);
}

TEST(Samples, KeepTheirOrder) {
  Samples samples;
  for (const double value : {3.0, 1.0, 2.0}) samples.add_us(value);
  (void)samples.summary();
  EXPECT_EQ(std::vector<double>(samples.values_us().begin(), samples.values_us().end()),
            (std::vector<double>{3, 1, 2}));
}

TEST(Samples, NoneIsAnError) { EXPECT_EQ(Samples().summary().status().code(), Code::invalid_usage); }

TEST(Samples, WhatIsNoDurationIsAnError) {
  for (const double bad : {-1.0, std::nan(""), std::numeric_limits<double>::infinity()}) {
    Samples samples;
    samples.add_us(1);
    samples.add_us(bad);
    const Status status = samples.summary().status();
    EXPECT_EQ(status.code(), Code::invalid_argument);
    EXPECT_NE(status.text().find("sample 1"), std::string::npos) << status.text();
  }
}

TEST(SlowestRank, TakesTheLargestOfEachSample) {
  Samples ranks[3];
  for (const double value : {1.0, 5.0, 2.0}) ranks[0].add_us(value);
  for (const double value : {3.0, 4.0, 2.0}) ranks[1].add_us(value);
  for (const double value : {2.0, 1.0, 9.0}) ranks[2].add_us(value);
  const auto slowest = slowest_rank(ranks);
  ASSERT_TRUE(slowest.ok());
  EXPECT_EQ(std::vector<double>(slowest->values_us().begin(), slowest->values_us().end()),
            (std::vector<double>{3, 5, 9}));
}

TEST(SlowestRank, DifferentCountsAreAnError) {
  Samples ranks[2];
  ranks[0].add_us(1);
  const Status status = slowest_rank(ranks).status();
  EXPECT_EQ(status.code(), Code::invalid_argument);
  EXPECT_NE(status.text().find("rank 1 has 0"), std::string::npos) << status.text();
  EXPECT_FALSE(slowest_rank({}).ok());
}

}  // namespace
}  // namespace nearlight::trace
