// Kernels of somebody else's on channels, for a look at their code: with the groups of this library and,
// where its header is, of NCCL.
#include <nearlight/device.cuh>

#if NEARLIGHT_TEST_NCCL_HEADERS
#include <nearlight/device_nccl.cuh>
#endif

using namespace nearlight;
using device::Memory;

struct Plus {
  __device__ float operator()(float a, float b) const { return a + b; }
};

template <class Protocol, class Coop, bool kChecks>
__device__ void reduce(const Memory& memory, Coop coop, float* values, int rounds) {
  device::Channel<Protocol, Coop, kChecks> ch(memory, 0, coop);
  const auto slot = static_cast<unsigned>(coop.thread_rank());
  for (int round = 0; round < rounds; ++round) {
    float sum = 0;
    ch.bcast(slot, values[slot]);
    if (ch.recv_reduce(slot, values[slot], Plus{}, sum)) values[slot] = sum;
    ch.advance_epoch();
  }
}

#define REDUCE(name, protocol, coop, checks)                                  \
  extern "C" __global__ void name(Memory memory, float* values, int rounds) { \
    reduce<device::protocol, coop, checks>(memory, coop{}, values, rounds);   \
  }
REDUCE(ll_cta, LL, device::Cta, false)
REDUCE(ll_warp, LL, device::Warp, false)
REDUCE(ll_thread, LL, device::Thread, false)
REDUCE(ll_checked, LL, device::Cta, true)
extern "C" __global__ void ll_whole_warps(Memory memory, float* values) {
  device::Channel<device::LL> ch(memory);
  float sum = 0;
  ch.bcast(threadIdx.x, values[threadIdx.x]);
  if (ch.recv_reduce<2, true>(threadIdx.x, values[threadIdx.x], Plus{}, sum)) values[threadIdx.x] = sum;
}
REDUCE(sentinel_cta, Sentinel, device::Cta, false)

extern "C" __global__ void simple_cta(Memory memory, std::uint64_t* values) {
  device::Channel<device::Simple> ch(memory);
  ch.put(1, threadIdx.x, {{values[threadIdx.x], 0}});
  ch.signal(1);
  ch.wait_signal(1);
  values[threadIdx.x] = ch.get(1, threadIdx.x).pack[0];
  ch.advance_epoch();
}

#if NEARLIGHT_TEST_NCCL_HEADERS
REDUCE(ll_nccl_cta, LL, ncclCoopCta, false)
REDUCE(ll_nccl_warp, LL, ncclCoopWarp, false)
REDUCE(ll_nccl_thread, LL, ncclCoopThread, false)

extern "C" __global__ void from_nccl(ncclDevComm comm, ncclWindow_t window, device::nccl::Own own,
                                     float* values) {
  const Memory memory = device::nccl::memory_of(comm, window, 0, own);
  device::put_at_rest(memory, 0);
  reduce<device::LL, ncclCoopCta, false>(memory, ncclCoopCta{}, values, 1);
}
#endif
