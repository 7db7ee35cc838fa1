#include "runtime/call_route.hpp"

namespace nearlight::runtime {

Result<route::Route> route_of_call(const route::Facts& facts, const CallOptions& options) {
  route::Route route = route::all_reduce(facts);
  if (options.protocol) {
    NL_TRY_ASSIGN(const route::Route forced, route::forced(facts, *options.protocol));
    // One rank has nobody to send to, by whatever protocol.
    if (facts.nranks > 1) route = forced;
  }
  if (facts.nranks == 1 || !options.algorithm) return route;
  if (*options.algorithm != route.algorithm) {
    return failure(Code::invalid_argument, "algorithm: %s is none that %d ranks can take",
                   name_of(*options.algorithm), facts.nranks);
  }
  route.reason = options.protocol ? "the caller asked for this algorithm and this protocol"
                                  : "the caller asked for this algorithm";
  return route;
}

}  // namespace nearlight::runtime
