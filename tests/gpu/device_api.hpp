// Kernels as somebody else would write them, on channels (nearlight/device.cuh); launched here so that the
// tests need no nvcc.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include <nearlight/detail/protocol/channel_memory.hpp>

namespace nearlight::test {

// ll_pair: of two ranks, whole warps: the fastest there is; `count` a multiple of 32, no checks.
enum class ChannelProtocol { ll, sentinel, ll_pair };

// Loads all of them on the current device: the first launch of a kernel may wait for those that run.
cudaError_t preload_device_api();

// out[i] = sum over the ranks of in[i], in rank order, `rounds` times in one kernel, `count` <= 256 floats.
// `checked`: with checks. ns[0] (may be null): of all rounds, by the GPU's clock.
cudaError_t own_all_reduce(const protocol::ChannelMemory& memory, ChannelProtocol protocol, bool checked,
                           const float* in, float* out, std::uint32_t count, std::uint32_t rounds,
                           std::uint64_t* ns, cudaStream_t stream);
// Ranks 0 and 1: 8 bytes there and back, `laps` times, by one thread. ns[0]: of all laps; ns[1]: laps whose
// message was wrong.
cudaError_t ping_pong(const protocol::ChannelMemory& memory, std::uint32_t laps, std::uint64_t* ns,
                      cudaStream_t stream);
// Puts, signal, wait, get with every other rank, by a block. wrong[0]: cells that were.
cudaError_t put_to_all(const protocol::ChannelMemory& memory, std::uint32_t rounds, std::uint64_t* wrong,
                       cudaStream_t stream);
// Waits for rank `source`'s slot 0. outcome[0]: 1 received, 2 not.
cudaError_t wait_for(const protocol::ChannelMemory& memory, int source, std::uint64_t* outcome,
                     cudaStream_t stream);
// Ends an epoch in which nothing was received, with checks.
cudaError_t advance_unheard(const protocol::ChannelMemory& memory, cudaStream_t stream);

}  // namespace nearlight::test
