// The whole product of types, operators, counts, offsets and places, on CPU threads.
#include <gtest/gtest.h>

#include "tests/property/plan.hpp"

namespace nearlight::test {
namespace {

class ProductThreads : public testing::TestWithParam<DataType> {};

TEST_P(ProductThreads, OperatorsCountsOffsetsAndPlaces) {
  for (const int nranks : {2, 3}) {
    EXPECT_EQ(run_plan(Kind::threads, product(nranks, GetParam())), "") << nranks << " ranks";
  }
}

INSTANTIATE_TEST_SUITE_P(Types, ProductThreads, testing::ValuesIn(kDataTypes),
                         [](const auto& one) { return std::string(name_of(one.param)); });

}  // namespace
}  // namespace nearlight::test
