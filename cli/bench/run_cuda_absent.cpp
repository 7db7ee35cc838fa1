// A build without CUDA.
#include "cli/bench/run_cuda.hpp"
#include "cli/bench/run_process.hpp"

namespace nearlight::bench {

namespace {
Status no_cuda() { return Status(Code::unsupported, "this build of nearlight has no CUDA"); }
}  // namespace

Result<CudaResult> run_cuda(const CudaJob&) { return no_cuda(); }
Result<CudaResult> run_cuda_process(const CudaJob&, int, const std::string&) { return no_cuda(); }

}  // namespace nearlight::bench
