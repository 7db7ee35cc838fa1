// The route of one call: what the facts choose, unless the caller forces a part of it.
#pragma once

#include "base/status.hpp"
#include "route/route.hpp"
#include "runtime/communicator.hpp"

namespace nearlight::runtime {

// Looks at CallOptions::algorithm and ::protocol; grid and threads are the GPU's affair.
// Code::invalid_argument names the option that cannot be.
Result<route::Route> route_of_call(const route::Facts& facts, const CallOptions& options);

// The same of a collective that goes by parts; `facts.count` is the call's.
Result<route::Route> route_of_parts(const CollectiveCall& call, const route::Facts& facts,
                                    const CallOptions& options);

// The same of calls that have one way, fused ones and products. Code::invalid_argument and ::unsupported name
// the option that cannot be.
Result<route::FusedRoute> route_of_one_way(const FusedCall& call, const route::Facts& facts,
                                           const CallOptions& options);
Result<route::Route> route_of_one_way(const GemvCall& call, const route::Facts& facts,
                                      const CallOptions& options);

}  // namespace nearlight::runtime
