// A kernel of one rank that goes through a channel, with memory from a communicator.
#define NEARLIGHT_DEVICE_CHECKS 1
#include <nearlight/device.cuh>

namespace device = nearlight::device;

struct Plus {
  __device__ float operator()(float a, float b) const { return a + b; }
};

__global__ void sum_of_ranks(device::Memory memory, float* values) {
  device::Channel<device::LL> ch(memory);
  const auto slot = threadIdx.x;
  const float own = values[slot];
  float sum = 0;
  ch.bcast(slot, own);
  if (ch.recv_reduce(slot, own, Plus{}, sum)) values[slot] = sum;
}

#ifndef KERNELS_ONLY
#include <nearlight/device_memory.hpp>

#include <cstdio>

int main() {
  int gpus = 0;
  const bool has_gpu = cudaGetDeviceCount(&gpus) == cudaSuccess && gpus > 0;
  try {
    auto comms = nearlight::Communicator::local({0});
    if (!has_gpu) return 1;
    const device::Channels channels(comms[0], {.slots = 32});
    float* values = nullptr;
    if (cudaMalloc(&values, 32 * sizeof(float)) != cudaSuccess) return 1;
    sum_of_ranks<<<1, 32>>>(channels.memory(), values);
    if (cudaDeviceSynchronize() != cudaSuccess || !comms[0].status()) return 1;
    std::printf("device API: ok, on a GPU\n");
  } catch (const nearlight::Error& error) {
    if (has_gpu) return 1;
    std::printf("device API: ok, without a GPU: %s\n", error.what());
  }
  return 0;
}
#endif
