// The one-shot AllReduce of one CPU rank, run by the calling thread.
#pragma once

#include <cstdint>

#include <nearlight/detail/exec/host_space.hpp>
#include "algorithm/host/hooked_space.hpp"
#include "algorithm/kinds.hpp"
#include "algorithm/one_shot.hpp"
#include "base/types.hpp"
#include "trace/epoch_ring.hpp"

namespace nearlight::algorithm::host {

struct AllReduceCall {
  char* region;  // rank 0's region
  std::size_t stride;
  int rank;
  protocol::RegionLayout layout;
  protocol::RegionState<exec::HostSpace>* state;
  protocol::Control<exec::HostSpace> control;
  std::uint32_t collective;
  DataType type;
  ReduceOp op;
  Algorithm algorithm = Algorithm::one_shot;
  Protocol protocol;
  const void* send;
  void* recv;
  std::uint64_t count;
  std::uint64_t factor = 0;            // premul_sum: the bits of this rank's factor
  trace::EpochTimes* trace = nullptr;  // where times go, trace::kLinesOnCpu of them; null: nowhere
  // Test hooks; has_own_code() only.
  Delay<exec::HostSpace> delay = {};
  PacketFault packet_fault = {};
};

// A failure is in the control's record, not in a return value: one place for all spaces.
void all_reduce(const AllReduceCall& call);

// The pre-multiplied sum of a single rank: recv[i] = factor * send[i].
void multiply_alone(DataType type, const void* send, void* recv, std::uint64_t count, std::uint64_t factor);

}  // namespace nearlight::algorithm::host
