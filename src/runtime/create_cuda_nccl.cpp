// GPU communicators on top of an NCCL communicator. See create.hpp.
#include <utility>

#include <nearlight/detail/protocol/region.hpp>
#include "memory/nccl_api.hpp"
#include "memory/nccl_environment.hpp"
#include "memory/nccl_exchange.hpp"
#include "memory/nccl_window_heap.hpp"
#include "runtime/checks.hpp"
#include "runtime/create.hpp"
#include "runtime/cuda_communicator.hpp"
#include "runtime/nccl_fallback.hpp"
#include "runtime/nccl_memory.hpp"
#include "runtime/vmm_heap.hpp"

namespace nearlight::runtime {

Result<std::unique_ptr<Communicator>> create_cuda_nccl(ncclComm* comm, const Options& options) {
  if (comm == nullptr) return failure(Code::invalid_argument, "comm is null");
  NL_TRY_ASSIGN(const memory::Nccl* const nccl, memory::Nccl::attached());
  NL_TRY_ASSIGN(const int device, nccl->comm_device(comm));
  NL_TRY_ASSIGN(const int nranks, nccl->comm_count(comm));
  if (nranks > protocol::kMaxRanks)
    return failure(Code::invalid_argument, "nranks: %d is not between 1 and %d", nranks, protocol::kMaxRanks);
  const Deadline deadline = create_deadline(options);
  NL_TRY_ASSIGN(std::shared_ptr<Exchange> known,
                memory::create_nccl_exchange(comm, deadline, memory::NcclTopic::communicator));

  const auto make_window = [](void* context, Exchange&, int, std::size_t bytes, Deadline until) {
    return memory::create_nccl_window_heap(static_cast<ncclComm*>(context), bytes, until);
  };
  NcclMemories memories;
  memories.nccl = nccl->name();
  memories.windows_tested = memory::check_nccl_window_version(nccl->version());
  memories.may_do_without = memory::check_gpus_are_not_kept_apart();
  memories.windows = [&](std::shared_ptr<Exchange> exchange, const std::string& reason) {
    const CudaCommunicator::HeapPlan plan{.make = make_window,
                                          .context = comm,
                                          .one_rank_per_gpu = true,
                                          .reason = reason,
                                          .deadline = deadline};
    return CudaCommunicator::create(std::move(exchange), device, plan, options,
                                    make_nccl_fallback(*nccl, comm, device));
  };
  memories.vmm = [&](std::unique_ptr<Exchange> met, const std::string& reason, bool asked) {
    const CudaCommunicator::HeapPlan plan{
        .make = make_vmm_heap, .by_nvlink = !asked, .reason = reason, .deadline = deadline};
    return CudaCommunicator::create(std::move(met), device, plan, options,
                                    make_nccl_fallback(*nccl, comm, device));
  };
  return create_on_nccl_memory(std::move(known), memories, deadline);
}

}  // namespace nearlight::runtime
