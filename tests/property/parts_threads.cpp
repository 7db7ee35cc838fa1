#include <gtest/gtest.h>

#include "tests/property/parts_plan.hpp"

namespace nearlight::test {
namespace {

class PartsThreads : public testing::TestWithParam<int> {};

TEST_P(PartsThreads, EveryCollectiveTypeProtocolAndCount) {
  EXPECT_EQ(run_parts_matrix(Kind::threads, GetParam()), "");
}
TEST_P(PartsThreads, EveryOperator) { EXPECT_EQ(run_parts_operators(Kind::threads, GetParam()), ""); }
TEST_P(PartsThreads, PartsThatMeetInsideAVector) {
  EXPECT_EQ(run_parts_tails(Kind::threads, GetParam()), "");
}
TEST_P(PartsThreads, TurnsWithTheOthers) {
  EXPECT_EQ(run_parts_mixed(Kind::threads, GetParam(), 400 / kSlowDown + 40, 1), "");
}

INSTANTIATE_TEST_SUITE_P(Ranks, PartsThreads, testing::Range(1, 9));

}  // namespace
}  // namespace nearlight::test
