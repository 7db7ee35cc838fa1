// GPU communicators on top of an NCCL communicator. See create.hpp.
#include "memory/nccl_api.hpp"
#include "memory/nccl_exchange.hpp"
#include "memory/nccl_window_heap.hpp"
#include "runtime/checks.hpp"
#include "runtime/create.hpp"
#include "runtime/cuda_communicator.hpp"
#include "runtime/nccl_fallback.hpp"

namespace nearlight::runtime {

Result<std::unique_ptr<Communicator>> create_cuda_nccl(ncclComm* comm, const Options& options) {
  if (comm == nullptr) return failure(Code::invalid_argument, "comm is null");
  NL_TRY_ASSIGN(const memory::Nccl* const nccl, memory::Nccl::attached());
  NL_TRY_ASSIGN(const int device, nccl->comm_device(comm));
  NL_TRY_ASSIGN(auto exchange, memory::create_nccl_exchange(comm, create_deadline(options)));
  const auto make_heap = [](void* context, Exchange&, int, std::size_t bytes, Deadline deadline) {
    return memory::create_nccl_window_heap(static_cast<ncclComm*>(context), bytes, deadline);
  };
  return CudaCommunicator::create(std::move(exchange), device, true, make_heap, comm, options,
                                  make_nccl_fallback(*nccl, comm, device));
}

}  // namespace nearlight::runtime
