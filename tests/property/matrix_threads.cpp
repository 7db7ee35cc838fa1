#include <gtest/gtest.h>

#include "tests/property/plan.hpp"

namespace nearlight::test {
namespace {

class AllReduceThreads : public testing::TestWithParam<int> {};

TEST_P(AllReduceThreads, EveryTypeOperationProtocolAndCount) {
  EXPECT_EQ(run_plan(Kind::threads, matrix(GetParam())), "");
}

TEST(AllReduceThreadsTails, EveryLength) {
  for (const int nranks : {2, 3, 8})
    EXPECT_EQ(run_plan(Kind::threads, tails(nranks)), "") << nranks << " ranks";
}

TEST(AllReduceThreadsTails, MillionsOfElements) { EXPECT_EQ(run_plan(Kind::threads, millions()), ""); }

INSTANTIATE_TEST_SUITE_P(Ranks, AllReduceThreads, testing::Range(1, 9));

}  // namespace
}  // namespace nearlight::test
