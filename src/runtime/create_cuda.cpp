// GPU communicators on memory that ranks share without NCCL. See create.hpp.
#include <utility>

#include "memory/cuda_vmm_heap.hpp"
#include "runtime/create.hpp"
#include "runtime/cuda_communicator.hpp"

namespace nearlight::runtime {

namespace {

Result<std::unique_ptr<Communicator>> create_on_vmm(std::unique_ptr<Exchange> exchange, int device,
                                                    const Options& options) {
  const auto make_heap = [](void*, Exchange& group, int on_device, std::size_t bytes, Deadline deadline) {
    return memory::create_cuda_vmm_heap(group, on_device, bytes, deadline);
  };
  return CudaCommunicator::create(std::move(exchange), device, false, make_heap, nullptr, options);
}

}  // namespace

Result<std::unique_ptr<Communicator>> create_cuda_local(std::unique_ptr<Exchange> exchange, int device,
                                                        const Options& options) {
  if (exchange != nullptr && !exchange->same_process()) {
    return failure(Code::invalid_argument,
                   "exchange: its ranks are not all in this process; create_cuda_processes is for them");
  }
  return create_on_vmm(std::move(exchange), device, options);
}

Result<std::unique_ptr<Communicator>> create_cuda_processes(std::unique_ptr<Exchange> exchange, int device,
                                                            const Options& options) {
  if (exchange != nullptr && exchange->same_process()) {
    return failure(Code::invalid_argument,
                   "exchange: its ranks are threads of this process; create_cuda_local is for them");
  }
  return create_on_vmm(std::move(exchange), device, options);
}

}  // namespace nearlight::runtime
