#include "runtime/call_route.hpp"

#include "route/parts.hpp"

namespace nearlight::runtime {

Result<route::Route> route_of_call(const route::Facts& facts, const CallOptions& options) {
  if (options.algorithm == route::Algorithm::nccl && facts.nranks > 1) {
    if (options.protocol) {
      return failure(Code::invalid_argument, "protocol: %s, but nccl chooses its own",
                     algorithm::name_of(*options.protocol));
    }
    return route::forced_nccl(facts);
  }
  if (options.algorithm == route::Algorithm::staged && facts.nranks > 1) {
    if (options.protocol) {
      return failure(Code::invalid_argument, "protocol: %s, but staged chooses its own",
                     algorithm::name_of(*options.protocol));
    }
    return route::forced_staged(facts);
  }
  if (options.algorithm == route::Algorithm::two_shot && facts.nranks > 1) {
    const auto usual = algorithm::has_sentinel(facts.type) ? route::Protocol::sentinel : route::Protocol::ll;
    NL_TRY_ASSIGN(route::Route route, route::forced_two_shot(facts, options.protocol.value_or(usual)));
    if (route.algorithm == route::Algorithm::two_shot) route.reason = "the caller asked for this algorithm";
    return route;
  }
  if (options.algorithm == route::Algorithm::two_shot_atomic && facts.nranks > 1) {
    if (!algorithm::go_together(*options.algorithm, options.protocol.value_or(route::Protocol::ll128))) {
      return failure(Code::invalid_argument, "protocol: %s goes with ll128, not with %s",
                     name_of(*options.algorithm), name_of(*options.protocol));
    }
    NL_TRY_ASSIGN(route::Route route, route::forced_two_shot_atomic(facts));
    if (route.algorithm == *options.algorithm) route.reason = "the caller asked for this algorithm";
    return route;
  }
  // Any other than the two-shots, or the hand-over, that the facts alone might choose.
  route::Facts rest = options.algorithm || options.protocol ? route::without_nccl(facts) : facts;
  if (options.algorithm) rest.two_shot = false;
  route::Route route = route::all_reduce(rest);
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

Result<route::Route> route_of_parts(const CollectiveCall& call, const route::Facts& facts,
                                    const CallOptions& options) {
  const bool reduces = is_reduction(call.collective);
  if (is_uneven(call.collective) && facts.nranks > 1) {
    if (options.algorithm && *options.algorithm != route::Algorithm::one_shot) {
      return failure(Code::unsupported, "algorithm: %s is none that %s takes", name_of(*options.algorithm),
                     name_of(call.collective));
    }
    if (!agrees_on_most(call.collective)) {
      if (options.protocol) return route::forced_parts(facts, reduces, *options.protocol);
      route::Route route = route::parts(route::without_nccl(facts), reduces);
      if (const char* const why = route::uneven_stay(facts); why != nullptr) route.reason = why;
      return route;
    }
    if (options.protocol && *options.protocol != route::Protocol::ll) {
      return failure(Code::invalid_argument, "protocol: %s goes by ll alone, not by %s",
                     name_of(call.collective), name_of(*options.protocol));
    }
    route::Route route = route::parts_of_unknown_size(facts);
    if (const char* const why = route::uneven_stay(facts); why != nullptr) route.reason = why;
    return route;
  }
  if (facts.nranks > 1 && options.algorithm == route::Algorithm::nccl) {
    if (!options.protocol) return route::forced_parts_by_nccl(facts, reduces);
    return failure(Code::invalid_argument, "protocol: %s, but nccl chooses its own",
                   algorithm::name_of(*options.protocol));
  }
  if (facts.nranks > 1 && options.algorithm && *options.algorithm != route::Algorithm::one_shot) {
    return failure(Code::invalid_argument, "algorithm: %s is none that %s takes", name_of(*options.algorithm),
                   name_of(call.collective));
  }
  if (facts.nranks > 1 && options.protocol) return route::forced_parts(facts, reduces, *options.protocol);
  // With the algorithm given nothing else is.
  return route::parts(options.algorithm ? route::without_nccl(facts) : facts, reduces);
}

namespace {

// What no call that has one way can be told.
Status check_one_way(Collective collective, const route::Facts& facts, const CallOptions& options) {
  if (options.algorithm && *options.algorithm != route::Algorithm::one_shot) {
    return failure(Code::unsupported, "algorithm: %s is none that %s takes", name_of(*options.algorithm),
                   name_of(collective));
  }
  if (options.protocol && *options.protocol != route::Protocol::sentinel) {
    return failure(Code::invalid_argument, "protocol: %s goes by sentinel alone, not by %s",
                   name_of(collective), algorithm::name_of(*options.protocol));
  }
  if (options.first_slot != 0) return failure(Code::unsupported, "first_slot: for all_reduce alone");
  if (facts.gpu && (options.delay_point != 0 || options.packet_fault != 0)) {
    return failure(Code::unsupported, "%s: of %s on CPU ranks alone",
                   options.delay_point != 0 ? "delay_point" : "packet_fault", name_of(collective));
  }
  if (!facts.gpu && (options.grid != 0 || options.spread != 0))
    return failure(Code::unsupported, "%s: of GPU ranks alone", options.grid != 0 ? "grid" : "spread");
  return {};
}

}  // namespace

Result<route::FusedRoute> route_of_one_way(const FusedCall& call, const route::Facts& facts,
                                           const CallOptions& options) {
  NL_TRY(check_shape(call, facts.nranks));
  NL_TRY(check_one_way(call.collective, facts, options));
  if (options.threads != 0)
    return failure(Code::unsupported, "threads: those of %s follow from its rows", name_of(call.collective));
  route::FusedFacts rows = facts_of(call);
  rows.grid = options.grid;
  rows.spread = options.spread;
  return route::fused(facts, rows);
}

Result<route::Route> route_of_one_way(const GemvCall& call, const route::Facts& facts,
                                      const CallOptions& options) {
  NL_TRY(check_shape(call, facts.nranks));
  NL_TRY(check_one_way(call.collective, facts, options));
  if (options.threads != 0 || options.spread != 0) {
    return failure(Code::unsupported, "%s: %s has its own", options.threads != 0 ? "threads" : "spread",
                   name_of(call.collective));
  }
  route::GemvFacts what = facts_of(call, facts.nranks);
  what.grid = options.grid;
  return route::gemv(facts, what);
}

}  // namespace nearlight::runtime
