// What the factory says in a build without NCCL's headers.
#include "runtime/create.hpp"

namespace nearlight::runtime {

Result<std::unique_ptr<Communicator>> create_cuda_nccl(ncclComm*, const Options&) {
  return failure(Code::unsupported, "this build of nearlight saw no NCCL headers (nccl.h, nccl_device.h)");
}

}  // namespace nearlight::runtime
