// AllReduce with random ranks, counts, types, values and addresses.
#pragma once

#include "tests/property/plan.hpp"

namespace nearlight::test {

// Runs random plans and adds a GoogleTest failure with the smallest plan that goes wrong. The environment
// variable RC_PARAMS
// ("max_success=1000", "seed=...") changes how many.
void check_random_plans(Kind kind);

}  // namespace nearlight::test
