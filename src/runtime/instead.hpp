// The benchmark's code in place of the library's, to measure what a part of it costs.
#pragma once

#include "base/types.hpp"

namespace nearlight::algorithm {
namespace cuda {
struct AllReduceArgs;
struct Pick;
}  // namespace cuda
namespace host {
struct AllReduceCall;
}
}  // namespace nearlight::algorithm

namespace nearlight::runtime {

struct Instead {
  // CPU: makes all_reduce calls of more than one rank.
  void (*on_host)(const algorithm::host::AllReduceCall&) = nullptr;
  // GPU, kernel mode: as algorithm::cuda::PickKernel.
  void (*(*loops)(DataType, const algorithm::cuda::Pick&))(const algorithm::cuda::AllReduceArgs) = nullptr;
};

}  // namespace nearlight::runtime
