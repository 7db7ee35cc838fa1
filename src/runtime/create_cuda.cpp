// GPU communicators on memory that ranks share without NCCL. See create.hpp.
#include <utility>

#include "runtime/create.hpp"
#include "runtime/cuda_communicator.hpp"
#include "runtime/vmm_heap.hpp"

namespace nearlight::runtime {

Result<std::unique_ptr<Communicator>> create_cuda_local(std::unique_ptr<Exchange> exchange, int device,
                                                        const Options& options) {
  if (exchange != nullptr && !exchange->same_process()) {
    return failure(Code::invalid_argument,
                   "exchange: its ranks are not all in this process; create_cuda_processes is for them");
  }
  return CudaCommunicator::create(std::move(exchange), device, {make_vmm_heap}, options);
}

Result<std::unique_ptr<Communicator>> create_cuda_processes(std::unique_ptr<Exchange> exchange, int device,
                                                            const Options& options) {
  if (exchange != nullptr && exchange->same_process()) {
    return failure(Code::invalid_argument,
                   "exchange: its ranks are threads of this process; create_cuda_local is for them");
  }
  return CudaCommunicator::create(std::move(exchange), device, {make_vmm_heap}, options);
}

}  // namespace nearlight::runtime
