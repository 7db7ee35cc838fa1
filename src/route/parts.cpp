#include "route/parts.hpp"

#include <algorithm>

#include "route/because.hpp"
#include "route/shapes.hpp"

namespace nearlight::route {

namespace {

// Whether there is code for it.
bool can_take(const Facts& facts, bool reduces, Protocol protocol) {
  switch (protocol) {
    case Protocol::ll:
    case Protocol::simple:
      return true;
    case Protocol::sentinel:
      return reduces && algorithm::has_sentinel(facts.type) && facts.packets >= 32;
    case Protocol::ll128:
      break;
  }
  return false;
}

// The grid of an AllReduce of as many bytes, whose elements only say how many packs a thread holds.
Result<Route> shaped(const Facts& facts, Protocol protocol) {
  Facts shape = facts;
  shape.type = protocol == Protocol::sentinel ? DataType::f32 : DataType::i32;
  shape.op = ReduceOp::sum;
  shape.count = (bytes_of(facts) + 3) / 4;
  NL_TRY_ASSIGN(Route route, forced(shape, protocol));
  route.run_threads = route.threads;
  // Of many CTAs two fit an SM.
  if (facts.gpu && route.grid > algorithm::kFewCtas)
    route.run_threads = std::min(route.threads, algorithm::kSharedSmThreads);
  return route;
}

Protocol chosen(const Facts& facts, bool reduces) {
  const Table& table = table_of(facts);
  const std::size_t bytes = bytes_of(facts);
  if (!facts.gpu) return bytes <= table.ll_limit_bytes ? Protocol::ll : Protocol::simple;
  const auto others = static_cast<std::size_t>(facts.nranks - 1);
  const std::size_t width = facts.max_ctas == 0 ? facts.regions : std::min(facts.regions, facts.max_ctas);
  const std::size_t round = width * (facts.packets / 32 * 32) * 16;
  if (can_take(facts, reduces, Protocol::sentinel) && bytes >= table.sentinel_any_first_bytes / others &&
      bytes <= std::min<std::size_t>(table.sentinel_any_limit_bytes / others, round)) {
    return Protocol::sentinel;
  }
  return bytes <= table.ll_limit_bytes / others ? Protocol::ll : Protocol::simple;
}

const char* reason_of(const Facts& facts, Protocol protocol) {
  const Table& table = table_of(facts);
  if (!facts.gpu) {
    return protocol == Protocol::ll ? because<"CPU, small: the flag travels with the data">(table)
                                    : because<"CPU, large: plain copies, one flag a chunk">(table);
  }
  switch (protocol) {
    case Protocol::ll:
      return because<"GPU, small: the flag travels with the data, no fence (limits are all_reduce's)">(table);
    case Protocol::sentinel:
      return because<"GPU, middle: full payload that is its own arrival (limits are all_reduce's)">(table);
    case Protocol::simple:
    case Protocol::ll128:
      break;
  }
  return because<"GPU, large: full payload, one release flag a chunk (limits are all_reduce's)">(table);
}

// null: NCCL can have it. What is moved is bytes to it. `any_ctas`: though it takes as many as it likes.
const char* kept(const Facts& facts, bool reduces, bool any_ctas) {
  const char* const why = reduces ? kept_from_nccl(facts.nccl, facts.type, facts.op, bytes_of(facts))
                                  : kept_from_nccl(facts.nccl, DataType::f64, ReduceOp::sum, 0);
  if (why != nullptr || facts.max_ctas == 0 || any_ctas) return why;
  return "not handed to NCCL: it takes as many CTAs as it likes, and max_ctas is set";
}

bool is_past_nccls_first(const Facts& facts) {
  const std::uint64_t first = table_of(facts).nccl_first_bytes;
  if (!facts.gpu || facts.nccl.version == 0 || first == 0) return false;
  const auto others = static_cast<std::size_t>(facts.nranks - 1);
  return bytes_of(facts) >= (first + others - 1) / others;
}

Route by_nccl(const char* reason) {
  Route route;
  route.algorithm = Algorithm::nccl;
  route.grid = route.threads = route.run_threads = 0;
  route.reason = reason;
  return route;
}

Result<Route> own_route(const Facts& facts, bool reduces) {
  const bool is_forced = facts.forced.protocol && can_take(facts, reduces, *facts.forced.protocol);
  const Protocol protocol = is_forced ? *facts.forced.protocol : chosen(facts, reduces);
  NL_TRY_ASSIGN(Route route, shaped(facts, protocol));
  route.reason = is_forced ? "NEARLIGHT_FORCE_PATH or nearlightCommSetPath asks for this protocol"
                           : reason_of(facts, protocol);
  return route;
}

}  // namespace

Route parts(const Facts& facts, bool reduces) {
  if (facts.nranks == 1) return all_reduce(facts);
  const bool is_forced = facts.forced.fallback || facts.forced.algorithm == Algorithm::nccl;
  const char* why = nullptr;
  if (facts.forced.algorithm == Algorithm::staged || (facts.forced.fallback && facts.nccl.version == 0)) {
    why = "stays with nearlight's own kernels: the CPU makes all_reduce and barrier alone";
  } else if (is_forced || is_past_nccls_first(facts)) {
    why = kept(facts, reduces, facts.forced.fallback);
    if (why == nullptr) {
      return by_nccl(is_forced ? "NEARLIGHT_FORCE_PATH or nearlightCommSetPath asks for this algorithm"
                               : because<"GPU, beyond what nearlight wins: handed to the attached NCCL">(
                                     table_of(facts)));
    }
  }
  const auto own = own_route(facts, reduces);
  Route route = own.ok() ? *own : Route();
  if (why != nullptr) route.reason = why;
  return route;
}

namespace {

// Lanes that a message takes: what keeps a CTA busy for a turn or two.
std::uint32_t lanes_for(const Facts& facts, Protocol protocol) {
  if (!facts.gpu) return 1;
  constexpr std::size_t kBytesByLines = 2048, kBytesByCells = 16384;
  const std::size_t each = protocol == Protocol::ll ? kBytesByLines : kBytesByCells;
  const std::size_t width = facts.max_ctas == 0 ? facts.regions : std::min(facts.regions, facts.max_ctas);
  return static_cast<std::uint32_t>(std::clamp<std::size_t>((bytes_of(facts) + each - 1) / each, 1, width));
}

}  // namespace

Result<Route> message(const Facts& facts, std::optional<Protocol> protocol) {
  if (facts.nranks == 1) return all_reduce(facts);
  if (protocol && *protocol != Protocol::ll && *protocol != Protocol::simple) {
    return failure(Code::invalid_argument, "protocol: %s carries no messages, ll and simple do",
                   name_of(*protocol));
  }
  const char* why = nullptr;
  if (facts.forced.algorithm == Algorithm::staged || (facts.forced.fallback && facts.nccl.version == 0)) {
    why = "stays with nearlight's own kernels: the CPU makes all_reduce and barrier alone";
  } else if (facts.forced.fallback || facts.forced.algorithm == Algorithm::nccl) {
    why = kept(facts, false, facts.forced.fallback);
    if (why == nullptr)
      return by_nccl("NEARLIGHT_FORCE_PATH or nearlightCommSetPath asks for this algorithm");
  }
  Route route;
  const bool is_forced = facts.forced.protocol && (*facts.forced.protocol == Protocol::ll ||
                                                   *facts.forced.protocol == Protocol::simple);
  if (protocol) {
    route.protocol = *protocol;
    route.reason = "the caller asked for this protocol";
  } else if (is_forced) {
    route.protocol = *facts.forced.protocol;
    route.reason = "NEARLIGHT_FORCE_PATH or nearlightCommSetPath asks for this protocol";
  } else {
    route.protocol = bytes_of(facts) <= table_of(facts).ll_limit_bytes ? Protocol::ll : Protocol::simple;
    route.reason = reason_of(facts, route.protocol);
  }
  if (why != nullptr) route.reason = why;
  route.grid = lanes_for(facts, route.protocol);
  if (facts.gpu) route.threads = route.run_threads = algorithm::kMaxThreads;
  return route;
}

const char* uneven_stay(const Facts& facts) {
  const bool elsewhere = facts.forced.fallback || facts.forced.algorithm == Algorithm::nccl ||
                         facts.forced.algorithm == Algorithm::staged;
  if (!facts.gpu || !elsewhere) return nullptr;
  return "stays with nearlight's own kernels: neither NCCL nor the CPU makes calls with parts of any size";
}

Route parts_of_unknown_size(const Facts& facts) {
  Route route;
  route.protocol = Protocol::ll;
  route.reason = "parts of sizes that no rank knows all of: LL, whose first round tells of the largest";
  if (!facts.gpu) return route;
  // A few CTAs cost a small message little, and a large one takes rounds. Not measured.
  constexpr std::uint32_t kCtas = 16, kThreads = 256;
  route.grid = std::min({kCtas, facts.regions, facts.max_ctas == 0 ? kCtas : facts.max_ctas});
  route.threads = std::min(kThreads, std::max(32u, facts.slots / 32 * 32));
  route.held = 1;
  while (route.held < 4 && route.threads * route.held * 2 < facts.slots) route.held *= 2;
  route.run_threads = route.threads;
  return route;
}

Result<Route> forced_parts_by_nccl(const Facts& facts, bool reduces) {
  if (facts.nccl.version == 0) {
    return failure(Code::invalid_argument,
                   "algorithm: nccl, but no NCCL communicator is attached to this one");
  }
  if (const char* const why = kept(facts, reduces, false); why != nullptr)
    return failure(Code::unsupported, "algorithm: nccl: %s", why);
  return by_nccl("the caller asked for this algorithm");
}

Result<Route> forced_parts(const Facts& facts, bool reduces, Protocol protocol) {
  if (!can_take(facts, reduces, protocol)) {
    return failure(Code::invalid_argument, "protocol: %s does not carry this call%s", name_of(protocol),
                   protocol == Protocol::sentinel
                       ? ": it is for reductions of types with NaNs, where the communicator has packets"
                       : "");
  }
  NL_TRY_ASSIGN(Route route, shaped(facts, protocol));
  route.reason = "the caller asked for this protocol";
  return route;
}

}  // namespace nearlight::route
