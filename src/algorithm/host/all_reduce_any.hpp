// All types and operators on the CPU, by code that takes the operator as an argument.
#pragma once

#include "algorithm/host/all_reduce.hpp"

namespace nearlight::algorithm::host {

// As all_reduce(); call.delay is not looked at.
void all_reduce_any(const AllReduceCall& call);

}  // namespace nearlight::algorithm::host
