// The GPU side of a build without CUDA.
#include "cli/sol_heaps.hpp"

namespace nearlight::cli {

Result<probe::SolReport> measure_sol_on_gpus(int, int, int) {
  return failure(Code::unsupported, "built without CUDA");
}

}  // namespace nearlight::cli
