// NCCL as the fall-back.
#pragma once

#include <memory>

#include "memory/nccl_api.hpp"
#include "runtime/fallback.hpp"

namespace nearlight::runtime {

// `nccl` and `comm` outlive it. `device`: of the communicator.
std::unique_ptr<Fallback> make_nccl_fallback(const memory::Nccl& nccl, ncclComm* comm, int device);

}  // namespace nearlight::runtime
