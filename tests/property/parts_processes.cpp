#include <gtest/gtest.h>

#include "tests/property/parts_plan.hpp"

namespace nearlight::test {
namespace {

class PartsProcesses : public testing::TestWithParam<int> {};

TEST_P(PartsProcesses, EveryCollectiveTypeProtocolAndCount) {
  EXPECT_EQ(run_parts_matrix(Kind::processes, GetParam()), "");
}
TEST_P(PartsProcesses, EveryOperator) { EXPECT_EQ(run_parts_operators(Kind::processes, GetParam()), ""); }
TEST_P(PartsProcesses, PartsThatMeetInsideAVector) {
  EXPECT_EQ(run_parts_tails(Kind::processes, GetParam()), "");
}
TEST_P(PartsProcesses, TurnsWithTheOthers) {
  EXPECT_EQ(run_parts_mixed(Kind::processes, GetParam(), 400 / kSlowDown + 40, 1), "");
}

INSTANTIATE_TEST_SUITE_P(Ranks, PartsProcesses, testing::Values(2, 3, 8));

}  // namespace
}  // namespace nearlight::test
