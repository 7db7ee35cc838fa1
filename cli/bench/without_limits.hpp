// AllReduce whose waits have no limit, to measure what the limits cost (--paired deadline). It is the
// program's: the library has no such code.
#pragma once

#include "base/types.hpp"
#include "runtime/instead.hpp"

namespace nearlight::algorithm::cuda {
// As PickKernel: the loops inside a kernel, of types that has_code_without_limits().
void (*pick_loop_without_limits(DataType type, const Pick& pick))(const AllReduceArgs);
}  // namespace nearlight::algorithm::cuda

namespace nearlight::bench {

constexpr bool has_code_without_limits(DataType type, ReduceOp op) {
  return op == ReduceOp::sum && (type == DataType::f32 || type == DataType::bf16);
}

const runtime::Instead& code_without_limits();

}  // namespace nearlight::bench
