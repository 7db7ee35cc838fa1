// What the factories of GPU communicators say in a build without CUDA.
#include "runtime/create.hpp"

namespace nearlight::runtime {

Result<std::unique_ptr<Communicator>> create_cuda_local(std::unique_ptr<Exchange>, int, const Options&) {
  return failure(Code::unsupported, "this build of nearlight has no CUDA");
}

Result<std::unique_ptr<Communicator>> create_cuda_processes(std::unique_ptr<Exchange>, int, const Options&) {
  return failure(Code::unsupported, "this build of nearlight has no CUDA");
}

Result<std::unique_ptr<Communicator>> create_cuda_nccl(ncclComm*, const Options&) {
  return failure(Code::unsupported, "this build of nearlight has no CUDA");
}

}  // namespace nearlight::runtime
