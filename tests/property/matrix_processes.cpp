#include <gtest/gtest.h>

#include "tests/property/plan.hpp"

namespace nearlight::test {
namespace {

class AllReduceProcesses : public testing::TestWithParam<int> {};

TEST_P(AllReduceProcesses, EveryTypeOperationProtocolAndCount) {
  EXPECT_EQ(run_plan(Kind::processes, matrix(GetParam())), "");
}

TEST(AllReduceProcessesTails, EveryLength) {
  for (const int nranks : {2, 3, 8})
    EXPECT_EQ(run_plan(Kind::processes, tails(nranks)), "") << nranks << " ranks";
}

INSTANTIATE_TEST_SUITE_P(Ranks, AllReduceProcesses, testing::Range(1, 9));

}  // namespace
}  // namespace nearlight::test
