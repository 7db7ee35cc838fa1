#include "memory/nccl_call.hpp"

#include <chrono>
#include <utility>

#include "base/bounded_call.hpp"
#include "memory/cuda_driver.hpp"

namespace nearlight::memory {

Status nccl_call(const Nccl& nccl, ncclComm* comm, int device, const char* what, std::function<Status()> call,
                 Deadline deadline) {
  return begin_nccl_call(nccl, comm, device, what, std::move(call), deadline)();
}

std::function<Status()> begin_nccl_call(const Nccl& nccl, ncclComm* comm, int device, const char* what,
                                        std::function<Status()> call, Deadline deadline) {
  const auto run = [&nccl, comm, device, call = std::move(call)](LeftAlone& alone) -> Status {
    NL_TRY(cuda_status(cudaSetDevice(device), "cudaSetDevice"));
    Status status = call();
    while (status.code() == Code::in_progress && !alone.after(std::chrono::milliseconds(1))) {
      status = nccl.comm_async_error(comm);
    }
    return status;
  };
  return begin_bounded_call(
      run, deadline,
      failure(Code::timeout,
              "%s: not all ranks came in time; %s still waits for them until the communicator is aborted",
              what, nccl.describe().c_str()));
}

}  // namespace nearlight::memory
