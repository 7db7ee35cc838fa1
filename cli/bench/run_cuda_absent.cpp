// A build without CUDA.
#include "cli/bench/run_cuda.hpp"

namespace nearlight::bench {

Result<CudaResult> run_cuda(const CudaJob&) {
  return failure(Code::unsupported, "this build of nearlight has no CUDA");
}

}  // namespace nearlight::bench
