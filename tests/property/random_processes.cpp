#include <gtest/gtest.h>

#include "tests/property/random_plan.hpp"

namespace nearlight::test {
namespace {

TEST(RandomAllReduceProcesses, EqualsTheReference) { check_random_plans(Kind::processes); }

}  // namespace
}  // namespace nearlight::test
