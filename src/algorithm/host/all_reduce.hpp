// The one-shot AllReduce of one CPU rank, run by the calling thread.
#pragma once

#include <cstdint>

#include "algorithm/kinds.hpp"
#include "algorithm/one_shot.hpp"
#include "base/types.hpp"
#include "exec/host_space.hpp"

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
  Protocol protocol;
  const void* send;
  void* recv;
  std::uint64_t count;
  Delay<exec::HostSpace> delay;  // test hook
};

// A failure is in the control's record, not in a return value: one place for all spaces.
void all_reduce(const AllReduceCall& call);

}  // namespace nearlight::algorithm::host
