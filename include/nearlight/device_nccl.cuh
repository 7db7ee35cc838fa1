// Channels in a window of NCCL's, without a communicator of nearlight: needs NCCL's nccl_device.h (2.28 and
// later), which this header includes, and is for .cu files.
//
// The host registers Plan::shared_bytes with ncclCommWindowRegister (symmetric memory, zeroed, at an offset
// that is a multiple of 128), allocates Plan::own_bytes (cudaMalloc, zeroed) and pinned words for
// device::nccl::Words, and no rank's kernel starts before all have done so. Where the shape has packets, a
// kernel of every rank calls put_at_rest() before that.
#ifndef NEARLIGHT_DEVICE_NCCL_CUH
#define NEARLIGHT_DEVICE_NCCL_CUH

// NCCL's headers do not pass everybody's warnings.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-parameter"
#include <nccl_device.h>
#pragma GCC diagnostic pop

#include <nearlight/device.cuh>

namespace nearlight::device::nccl {

// In pinned host memory that the GPU reaches, zeroed, one a rank. `valid` 1 (read with acquire): `record` is
// whole. The host sets `abort` to end all waits of the rank.
struct Words {
  alignas(128) std::uint32_t abort;
  alignas(128) std::uint32_t valid;
  Fault record;
};

// What the host gives its kernel beside NCCL's two.
struct Own {
  Shape shape;                     // nranks: of the LSA team
  char* own = nullptr;             // Plan::own_bytes on this GPU
  std::uint32_t* claim = nullptr;  // one word on this GPU, zeroed
  Words* words = nullptr;
  std::uint64_t timeout_ns = 0;  // of one wait
  std::uint32_t peers = 0;       // see Memory::peers
};

// The channels at `offset` of `window` (bytes, a multiple of 128), as the ranks of the LSA team see them; any
// thread. Reads the window's addresses from the GPU's memory: once at the beginning of a kernel, some 150 ns.
// An Own whose shape has another number of ranks than the team gives channels of no rank: nothing is
// sent, and every call fails with Misuse::no_such_channel.
inline __device__ Memory memory_of(const ncclDevComm& comm, ncclWindow_t window, std::size_t offset,
                                   const Own& own) {
  const ncclTeam team = ncclTeamLsa(comm);
  Memory memory;
  memory.base = static_cast<char*>(ncclGetLsaPointer(window, offset, 0));
  if (team.nRanks > 1)
    memory.stride =
        static_cast<std::size_t>(static_cast<char*>(ncclGetLsaPointer(window, offset, 1)) - memory.base);
  memory.own = own.own;
  memory.abort = &own.words->abort;
  memory.claim = own.claim;
  memory.valid = &own.words->valid;
  memory.record = &own.words->record;
  memory.timeout_ns = own.timeout_ns;
  memory.rank = team.rank;
  memory.peers = own.peers;
  memory.shape = own.shape;
  if (own.shape.nranks != team.nRanks) memory.shape.channels = 0;
  return memory;
}

}  // namespace nearlight::device::nccl

#endif  // NEARLIGHT_DEVICE_NCCL_CUH
