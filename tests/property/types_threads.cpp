// All types and operators, on CPU threads.
#include <gtest/gtest.h>

#include "tests/property/plan.hpp"

namespace nearlight::test {
namespace {

class AllTypes : public testing::TestWithParam<int> {};

TEST_P(AllTypes, EveryOperatorAndCount) { EXPECT_EQ(run_plan(Kind::threads, all_types(GetParam())), ""); }

INSTANTIATE_TEST_SUITE_P(Ranks, AllTypes, testing::Values(1, 2, 3, 5, 8));

TEST(AllTypesLarge, EveryOperator) { EXPECT_EQ(run_plan(Kind::threads, all_types_large(2)), ""); }

}  // namespace
}  // namespace nearlight::test
