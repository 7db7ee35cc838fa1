#include <gtest/gtest.h>

#include "tests/property/random_plan.hpp"

namespace nearlight::test {
namespace {

TEST(RandomAllReduceThreads, EqualsTheReference) { check_random_plans(Kind::threads); }

}  // namespace
}  // namespace nearlight::test
