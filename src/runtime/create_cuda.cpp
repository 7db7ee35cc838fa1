// GPU communicators of one process. See create.hpp.
#include "memory/cuda_vmm_heap.hpp"
#include "runtime/create.hpp"
#include "runtime/cuda_communicator.hpp"

namespace nearlight::runtime {

Result<std::unique_ptr<Communicator>> create_cuda_local(std::unique_ptr<Exchange> exchange, int device,
                                                        const Options& options) {
  const auto make_heap = [](void*, Exchange& group, int on_device, std::size_t bytes, Deadline deadline) {
    return memory::create_cuda_vmm_heap(group, on_device, bytes, deadline);
  };
  return CudaCommunicator::create(std::move(exchange), device, false, make_heap, nullptr, options);
}

}  // namespace nearlight::runtime
