// The fused AllReduce of one CPU rank, run by the calling thread.
#pragma once

#include "algorithm/host/all_reduce.hpp"
#include "algorithm/row_finish.hpp"

namespace nearlight::algorithm::host {

// `all`: as for an AllReduce, but for what it sends and receives; the type is bf16 or f16.
struct FusedCall {
  AllReduceCall all;
  FusedRows rows;
};

// A failure is in the control's record.
void fused(const FusedCall& call);

}  // namespace nearlight::algorithm::host
