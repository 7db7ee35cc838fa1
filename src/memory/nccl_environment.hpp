// What NCCL's own variables say that is nearlight's business as well.
#pragma once

#include "base/status.hpp"

namespace nearlight::memory {

// Code::unsupported where NCCL was told not to let GPUs reach each other's memory, so that nearlight should
// not either.
Status check_gpus_are_not_kept_apart();

}  // namespace nearlight::memory
