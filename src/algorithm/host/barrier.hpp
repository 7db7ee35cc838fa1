// The flag barrier of one CPU rank, run by the calling thread.
#pragma once

#include <cstdint>

#include <nearlight/detail/exec/host_space.hpp>
#include <nearlight/detail/protocol/barrier.hpp>
#include "trace/epoch_ring.hpp"

namespace nearlight::algorithm::host {

struct BarrierCall {
  char* region;  // rank 0's region
  std::size_t stride;
  int rank;
  protocol::RegionLayout layout;
  protocol::RegionState<exec::HostSpace>* state;
  protocol::Control<exec::HostSpace> control;
  std::uint32_t collective;
  trace::EpochTimes* trace = nullptr;  // as in AllReduceCall
};

// A failure is in the control's record.
void barrier(const BarrierCall& call);

}  // namespace nearlight::algorithm::host
