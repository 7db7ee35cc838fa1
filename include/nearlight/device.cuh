// Channels for people's own kernels: messages between the GPUs of one host, from registers to registers, with
// the latency of the library's own collectives. Needs nvcc and C++20, and nothing else.
//
//   __global__ void my_layer(nearlight::device::Memory memory, float* values) {
//     nearlight::device::Channel<nearlight::device::LL> ch(memory, blockIdx.x);
//     float sum = 0;
//     ch.bcast(threadIdx.x, values[threadIdx.x]);
//     if (ch.recv_reduce(threadIdx.x, values[threadIdx.x], plus, sum)) values[threadIdx.x] = sum;
//     ch.advance_epoch();
//   }
//
// The memory comes from a communicator (nearlightChannelCreate), from NCCL's (nearlight/device_nccl.cuh), or
// from whoever has memory that all ranks reach (Shape, plan, Memory). What each call orders, who must call
// it, and the rule for epochs: docs/reference/device-api.md; a first program: docs/guide/device-api.md. With
// NEARLIGHT_DEVICE_CHECKS 1 mistakes of the caller become records instead of wrong data.
#ifndef NEARLIGHT_DEVICE_CUH
#define NEARLIGHT_DEVICE_CUH

#include <nearlight/detail/exec/cuda_coop.cuh>
#include <nearlight/detail/exec/cuda_space.cuh>
#include <nearlight/detail/protocol/channel.hpp>

// In front of a function that kernels and threads call (nearlight/device_host.hpp).
#define NEARLIGHT_DEVICE_FN NL_FN

namespace nearlight::device {

// Groups of threads: one thread, a warp, the whole block. Whatever has thread_rank(), size() and sync()
// serves as well, NCCL's ncclCoopCta and ncclCoopWarp among them.
using Thread = exec::ThreadCoop;
using Warp = exec::WarpCoop;
using Cta = exec::CtaCoop;

// See nearlight::protocol::Channel, MessageChannel (LL, Sentinel) and PutChannel (Simple).
template <class Protocol, class Coop = Cta, bool kChecks = NEARLIGHT_DEVICE_CHECKS != 0, int kRanks = 0>
using Channel = protocol::Channel<exec::CudaSpace, Protocol, Coop, kChecks, kRanks>;

// Puts rank's own packets of channel `index` at rest; all threads of the group call it, once, before any rank
// uses the channel. Only for memory that was not made by nearlightChannelCreate, and only where there are
// packets.
template <class Coop = Cta>
NL_FN void put_at_rest(const Memory& memory, std::uint32_t index, Coop coop = {}) {
  const protocol::FlatRegion<exec::CudaSpace> view(memory.region(index), memory.stride, memory.rank,
                                                   memory.shape.layout());
  for (int bank = 0; bank < protocol::kBanks; ++bank) {
    for (int source = 0; source < view.nranks(); ++source) {
      for (auto i = static_cast<std::uint32_t>(coop.thread_rank()); i < view.packets();
           i += static_cast<std::uint32_t>(coop.size()))
        exec::CudaSpace::store_packet(view.packet(memory.rank, bank, source, i), protocol::empty_packet());
    }
  }
}

}  // namespace nearlight::device

#endif  // NEARLIGHT_DEVICE_CUH
