#include "memory/nccl_window_kernel.hpp"

// NCCL's headers do not pass our warnings, and nvcc does not know its own include folder as a system's.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-parameter"
#include <nccl_device.h>
#pragma GCC diagnostic pop

namespace nearlight::memory {

namespace {

__global__ void lsa_addresses(ncclWindow_t window, int count, std::uint64_t* addresses) {
  for (int peer = 0; peer < count; ++peer) {
    addresses[peer] = reinterpret_cast<std::uint64_t>(ncclGetLsaPointer(window, 0, peer));
  }
}

}  // namespace

cudaError_t launch_lsa_addresses(ncclWindow_vidmem* window, int count, std::uint64_t* addresses,
                                 cudaStream_t stream) {
  lsa_addresses<<<1, 1, 0, stream>>>(window, count, addresses);
  return cudaGetLastError();
}

}  // namespace nearlight::memory
