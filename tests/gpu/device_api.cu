#include "tests/gpu/device_api.hpp"

#include <nearlight/device.cuh>

namespace nearlight::test {

namespace {

using device::Channel;
using device::Cta;
using device::LL;
using device::Memory;
using device::Sentinel;
using device::Simple;
using device::Thread;

struct Plus {
  __device__ float operator()(float a, float b) const { return a + b; }
};

// kRanks: 0, or their number, then with a slot for every thread.
template <class Protocol, bool kChecks, int kRanks = 0>
__global__ void __launch_bounds__(256)
    all_reduce(Memory memory, const float* in, float* out, std::uint32_t count, std::uint32_t rounds,
               std::uint64_t* ns) {
  constexpr bool kWholeWarps = kRanks > 0;
  Channel<Protocol, Cta, kChecks, kRanks> ch(memory);
  const std::uint32_t i = threadIdx.x;
  const bool mine = kWholeWarps || i < count;
  const float own = mine ? in[i] : 0;
  float sum = 0;
  const auto slot = [&] {
    if constexpr (kRanks > 0) return ch.hold(i);
    if constexpr (kRanks == 0) return i;
  }();
  const std::uint64_t start = exec::CudaSpace::now_ns();
  for (std::uint32_t round = 0; round < rounds; ++round) {
    if constexpr (kWholeWarps) {
      ch.bcast(slot, own);
      ch.template recv_reduce<true>(slot, own, Plus{}, sum);
    } else if (mine) {
      ch.bcast(slot, own);
      ch.recv_reduce(slot, own, Plus{}, sum);
    }
    if (round + 1 < rounds) ch.advance_epoch();
  }
  if (ns != nullptr && i == 0) *ns = exec::CudaSpace::now_ns() - start;
  if (mine && !ch.failed()) out[i] = sum;
}

__global__ void ping_pong_kernel(Memory memory, std::uint32_t laps, std::uint64_t* ns) {
  Channel<LL, Thread> ch(memory);
  std::uint64_t wrong = 0;
  const std::uint64_t start = exec::CudaSpace::now_ns();
  for (std::uint64_t lap = 0; lap < laps; ++lap) {
    std::uint64_t got = 0;
    if (ch.rank() == 0) {
      ch.send(1, 0, lap);
      ch.recv(1, 0, got);
    } else {
      ch.recv(0, 0, got);
      ch.send(0, 0, got);
    }
    wrong += got != lap;
    ch.advance_epoch();
  }
  ns[0] = exec::CudaSpace::now_ns() - start;
  ns[1] = wrong;
}

__global__ void put_kernel(Memory memory, std::uint32_t rounds, std::uint64_t* wrong) {
  Channel<Simple, Cta, true> ch(memory);
  const auto cell = threadIdx.x;
  for (std::uint32_t round = 1; round <= rounds; ++round) {
    const auto value = [&](int rank, std::uint32_t at) { return (round * 8ull + rank) << 16 | at; };
    for (int peer = 0; peer < ch.nranks(); ++peer) {
      if (peer == ch.rank()) continue;
      ch.put(peer, cell, {{value(ch.rank(), cell), ~value(ch.rank(), cell)}});
      ch.signal(peer);
    }
    for (int source = 0; source < ch.nranks(); ++source) {
      if (source == ch.rank()) continue;
      ch.wait_signal(source);
      // Of another warp's storing.
      const auto other = (cell + 33) % blockDim.x;
      const exec::Vec got = ch.get(source, other);
      if (got.pack[0] != value(source, other) || got.pack[1] != ~value(source, other))
        atomicAdd(reinterpret_cast<unsigned long long*>(wrong), 1ull);
    }
    ch.advance_epoch();
  }
}

__global__ void wait_kernel(Memory memory, int source, std::uint64_t* outcome) {
  Channel<LL, Thread> ch(memory);
  int value = 0;
  *outcome = ch.recv(source, 0, value) ? 1 : 2;
}

__global__ void unheard_kernel(Memory memory) {
  Channel<LL, Cta, true> ch(memory);
  if (threadIdx.x == 0) ch.bcast(0, 1);
  ch.advance_epoch();
}

template <class Kernel>
cudaError_t load(Kernel* kernel) {
  cudaFuncAttributes attributes{};
  return cudaFuncGetAttributes(&attributes, reinterpret_cast<const void*>(kernel));
}

}  // namespace

cudaError_t preload_device_api() {
  for (const cudaError_t error :
       {load(all_reduce<LL, false>), load(all_reduce<LL, true>), load(all_reduce<LL, false, 2>),
        load(all_reduce<Sentinel, false>), load(all_reduce<Sentinel, true>), load(ping_pong_kernel),
        load(put_kernel), load(wait_kernel), load(unheard_kernel)}) {
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

cudaError_t own_all_reduce(const Memory& memory, ChannelProtocol protocol, bool checked, const float* in,
                           float* out, std::uint32_t count, std::uint32_t rounds, std::uint64_t* ns,
                           cudaStream_t stream) {
  const unsigned threads = (count + 31) / 32 * 32;
  if (protocol == ChannelProtocol::ll_pair) {
    all_reduce<LL, false, 2><<<1, threads, 0, stream>>>(memory, in, out, count, rounds, ns);
  } else if (protocol == ChannelProtocol::ll) {
    (checked ? all_reduce<LL, true> : all_reduce<LL, false>)<<<1, threads, 0, stream>>>(memory, in, out,
                                                                                        count, rounds, ns);
  } else {
    (checked ? all_reduce<Sentinel, true> : all_reduce<Sentinel, false>)<<<1, threads, 0, stream>>>(
        memory, in, out, count, rounds, ns);
  }
  return cudaGetLastError();
}
cudaError_t ping_pong(const Memory& memory, std::uint32_t laps, std::uint64_t* ns, cudaStream_t stream) {
  ping_pong_kernel<<<1, 1, 0, stream>>>(memory, laps, ns);
  return cudaGetLastError();
}
cudaError_t put_to_all(const Memory& memory, std::uint32_t rounds, std::uint64_t* wrong,
                       cudaStream_t stream) {
  put_kernel<<<1, 128, 0, stream>>>(memory, rounds, wrong);
  return cudaGetLastError();
}
cudaError_t wait_for(const Memory& memory, int source, std::uint64_t* outcome, cudaStream_t stream) {
  wait_kernel<<<1, 1, 0, stream>>>(memory, source, outcome);
  return cudaGetLastError();
}
cudaError_t advance_unheard(const Memory& memory, cudaStream_t stream) {
  unheard_kernel<<<1, 64, 0, stream>>>(memory);
  return cudaGetLastError();
}

}  // namespace nearlight::test
