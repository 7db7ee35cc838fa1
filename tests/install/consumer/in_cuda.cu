// One GPU rank whose input comes from a kernel of this program; where there is no GPU, the error that says
// so.
#include <cuda_runtime.h>
#include <nearlight/nearlight.hpp>

#include <cstdio>

__global__ void fill(float* to, int count) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < count) to[i] = static_cast<float>(i);
}

int main() {
  constexpr int kCount = 1000;
  int gpus = 0;
  const bool has_gpu = cudaGetDeviceCount(&gpus) == cudaSuccess && gpus > 0;
  try {
    auto comms = nearlight::Communicator::local({0});
    if (!has_gpu) return 1;
    float *send = nullptr, *recv = nullptr, last = 0;
    cudaStream_t stream = nullptr;
    if (cudaStreamCreate(&stream) != cudaSuccess) return 1;
    if (cudaMalloc(&send, kCount * sizeof(float)) != cudaSuccess) return 1;
    if (cudaMalloc(&recv, kCount * sizeof(float)) != cudaSuccess) return 1;
    fill<<<4, 256, 0, stream>>>(send, kCount);
    comms[0].all_reduce(send, recv, kCount, nearlight::f32, nearlight::sum, stream);
    if (cudaStreamSynchronize(stream) != cudaSuccess) return 1;
    if (cudaMemcpy(&last, recv + kCount - 1, sizeof last, cudaMemcpyDeviceToHost) != cudaSuccess) return 1;
    if (last != kCount - 1) return 1;
    std::printf("CUDA: ok, on a GPU\n");
  } catch (const nearlight::Error& error) {
    if (has_gpu ||
        (error.code() != nearlight::Code::unsupported && error.code() != nearlight::Code::cuda_error)) {
      std::fprintf(stderr, "%s\n", error.what());
      return 1;
    }
    std::printf("CUDA: ok, without a GPU: %s\n", error.what());
  }
  return 0;
}
