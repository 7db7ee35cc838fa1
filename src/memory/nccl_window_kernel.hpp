// Asks NCCL's device functions where a window lies.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

struct ncclWindow_vidmem;

namespace nearlight::memory {

// addresses[p] = where this rank finds byte 0 of the window of rank p of its load/store team, p < count.
// `addresses` is device memory.
cudaError_t launch_lsa_addresses(ncclWindow_vidmem* window, int count, std::uint64_t* addresses,
                                 cudaStream_t stream);

}  // namespace nearlight::memory
