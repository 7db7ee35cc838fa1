// The GEMV of one CPU rank with its AllReduce, or with an AllGather in front, run by the calling thread.
#pragma once

#include "algorithm/gemv.hpp"
#include "algorithm/host/all_reduce.hpp"

namespace nearlight::algorithm::host {

// `all`: as for an AllReduce, but for what it sends and receives; the type is bf16 or f16.
struct GemvCall {
  AllReduceCall all;
  Gemv gemv;
};

// A failure is in the control's record.
void gemv(const GemvCall& call);
// The tokens' parts gathered, and this rank's product of them.
void all_gather_gemv(const GemvCall& call);

}  // namespace nearlight::algorithm::host
