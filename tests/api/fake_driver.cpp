// What else of CUDA's run time the library's use of NCCL and of the driver asks for; there is no driver.
#include <cuda_runtime_api.h>

#include <cstring>

extern "C" {

cudaError_t cudaMemsetAsync(void* to, int value, std::size_t bytes, cudaStream_t) {
  std::memset(to, value, bytes);
  return cudaSuccess;
}
const char* cudaGetErrorName(cudaError_t) { return "an error of the stand-in"; }
cudaError_t cudaInitDevice(int, unsigned int, unsigned int) { return cudaSuccess; }
cudaError_t cudaGetDriverEntryPointByVersion(const char*, void** function, unsigned int, unsigned long long,
                                             cudaDriverEntryPointQueryResult* found) {
  *function = nullptr;
  if (found != nullptr) *found = cudaDriverEntryPointSymbolNotFound;
  return cudaErrorNotSupported;
}

}  // extern "C"
