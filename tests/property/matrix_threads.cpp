#include <gtest/gtest.h>

#include "tests/property/plan.hpp"

namespace nearlight::test {
namespace {

class AllReduceThreads : public testing::TestWithParam<int> {};

TEST_P(AllReduceThreads, EveryTypeOperationProtocolAndCount) {
  EXPECT_EQ(run_plan(Kind::threads, matrix(GetParam())), "");
}

INSTANTIATE_TEST_SUITE_P(Ranks, AllReduceThreads, testing::Range(1, 9));

}  // namespace
}  // namespace nearlight::test
