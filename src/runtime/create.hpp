// How communicators come to be. Each call is collective over its group; all ranks succeed or all fail, in
// bounded time.
#pragma once

#include <memory>

#include "base/exchange.hpp"
#include "runtime/communicator.hpp"

struct ncclComm;

namespace nearlight::runtime {

// CPU ranks: threads of one process or processes of one host. 1 to 8 ranks.
Result<std::unique_ptr<Communicator>> create_host(std::unique_ptr<Exchange> exchange,
                                                  const Options& options = {});
// The same with an exchange that outlives the communicator.
Result<std::unique_ptr<Communicator>> create_host(Exchange& exchange, const Options& options = {});

// GPU ranks of one process on `device` (CUDA ordinal, may differ per rank). Several ranks may share a GPU:
// their kernels must be resident together, so each gets its own stream and CUDA_DEVICE_MAX_CONNECTIONS must
// exceed the ranks of the GPU. Code::unsupported where this build or machine has no CUDA, or two devices
// cannot reach each other.
Result<std::unique_ptr<Communicator>> create_cuda_local(std::unique_ptr<Exchange> exchange, int device,
                                                        const Options& options = {});

// GPU ranks in processes of their own, on one host (bootstrap/process_group.hpp); only where the memory comes
// from differs. `device` is this process's number of its GPU; a process need not see the others' GPUs. Ranks
// that share a GPU take turns on it, some milliseconds each, so that every operation waits for the next turn:
// of use for tests only. A rank whose process ends is noticed at once.
Result<std::unique_ptr<Communicator>> create_cuda_processes(std::unique_ptr<Exchange> exchange, int device,
                                                            const Options& options = {});

// Attaches to an NCCL communicator, which stays the caller's and must outlive this one. The memory is NCCL's
// windows where they were tested with that NCCL (2.28.9) and its ranks have them, else what the ranks, all on
// one host with NVLink then, share without NCCL; NEARLIGHT_NCCL_MEMORY decides otherwise, and memory_reason()
// tells why.
Result<std::unique_ptr<Communicator>> create_cuda_nccl(ncclComm* comm, const Options& options = {});

}  // namespace nearlight::runtime
