#include "route/route.hpp"

#include <algorithm>

#include "algorithm/fit.hpp"
#include "route/because.hpp"
#include "route/shapes.hpp"

namespace nearlight::route {

namespace {

// Whether there is code for a sum of this type: several packets of a thread in flight.
bool sums_by_own_code(const Facts& facts) {
  return facts.op == ReduceOp::sum && algorithm::has_own_code(facts.type, facts.op);
}
// Where the sentinel ends, by one rank's bytes.
std::size_t sentinel_limit(const Facts& facts) {
  const Table& table = table_of(facts);
  return sums_by_own_code(facts) ? table.sentinel_limit_bytes : table.sentinel_any_limit_bytes;
}

// Whether LL128 is the choice where two-shot is not.
bool ll128_is_in_range(const Facts& facts) {
  const auto others = static_cast<std::size_t>(facts.nranks - 1);
  const Table& table = table_of(facts);
  return lines_are_whole(facts) && !algorithm::has_sentinel(facts.type) &&
         bytes_of(facts) >= table.ll128_first_bytes / others &&
         bytes_of(facts) <= table.ll128_limit_bytes / others;
}

// Whether two-shot is expected to be faster than one-shot (and, with LL, than simple).
std::size_t two_shot_round(const Facts& facts, Protocol protocol, std::uint32_t regions) {
  // Contributions and results have halves of the slots, but for those that are added.
  const std::uint32_t slots = slots_of(facts, protocol) / (protocol == Protocol::ll128 ? 1 : 2);
  return std::size_t{regions} * slots * static_cast<std::size_t>(facts.nranks) * unit_bytes(facts, protocol);
}
bool two_shot_pays(const Facts& facts, Protocol protocol) {
  const auto n = static_cast<std::size_t>(facts.nranks);
  if (n < 3 || !two_shot_fits(facts, protocol)) return false;
  // One-shot sends (n-1) M, two-shot 2 (n-1)/n M; with LL twice that.
  const Table& table = table_of(facts);
  const std::size_t first = table.two_shot_gain_bytes * n / ((n - 1) * (n - 2));
  // LL has few CTAs; the sentinel all of them, where it needs them.
  const std::uint32_t regions = protocol == Protocol::ll ? few_regions(facts) : width_of(facts);
  const std::size_t bytes = bytes_of(facts);
  if (bytes > two_shot_round(facts, protocol, regions)) return false;
  if (protocol == Protocol::ll && ll128_is_in_range(facts)) {
    // One-shot by LL128 sends (n-1) M 128/120, this 4 (n-1)/n M.
    const std::size_t more = 16 * n >= 60 ? 16 * n - 60 : 0;  // of (n-1)/(15 n) M
    return more > 0 && bytes >= table.two_shot_gain_bytes * 15 * n / ((n - 1) * more);
  }
  // Simple, LL's successor, sends (n-1) M: from four ranks on no less than two-shot with LL.
  if (protocol == Protocol::ll) return n >= 4 && bytes >= first / 2;
  return bytes >= first && bytes <= sentinel_limit(facts);
}

Route with_protocol(const Facts& facts, Protocol protocol, const char* reason) {
  Route route = !facts.gpu                       ? on_cpu(facts)
                : protocol == Protocol::ll       ? ll_on_gpu(facts)
                : protocol == Protocol::sentinel ? sentinel_on_gpu(facts)
                : protocol == Protocol::ll128    ? ll128_on_gpu(facts)
                                                 : simple_on_gpu(facts);
  route.protocol = protocol;
  route.reason = reason;
  return route;
}

// Whether this call can take it: there are calls without packets.
bool can_take(const Facts& facts, Protocol protocol) {
  return algorithm::carries(protocol, facts.type) &&
         (protocol != Protocol::sentinel || sentinel_round(facts) > 0) &&
         (protocol != Protocol::ll128 || (facts.lines > 0 && (!facts.gpu || lines_are_whole(facts))));
}

// The two-shot that adds, where it can: what LL128 calls a round must be one, as a second would begin with a
// fence.
bool can_add(const Facts& facts) {
  return facts.two_shot && !facts.deterministic && (!facts.gpu || facts.adds_lines) &&
         algorithm::reduces(Algorithm::two_shot_atomic, facts.type, facts.op) &&
         slots_of(facts, Protocol::ll128) > 0 && two_shot_fits(facts, Protocol::ll128) &&
         (!facts.gpu || lines_are_whole(facts, true));
}
bool two_shot_atomic_pays(const Facts& facts) {
  if (facts.nranks < 3 || !can_add(facts) || !lines_are_whole(facts, true)) return false;
  return bytes_of(facts) <= two_shot_round(facts, Protocol::ll128, width_of(facts));
}

// What nearlight itself would run on several ranks.
Route own_route(const Facts& facts) {
  const Protocol of_two_shot = algorithm::has_sentinel(facts.type) ? Protocol::sentinel : Protocol::ll;
  constexpr const char* kAlgorithmForced =
      "NEARLIGHT_FORCE_PATH or nearlightCommSetPath asks for this algorithm";
  if (facts.forced.algorithm == Algorithm::two_shot && facts.two_shot && two_shot_fits(facts, of_two_shot)) {
    Route route = two_shot(facts, of_two_shot);
    route.reason = kAlgorithmForced;
    return route;
  }
  if (facts.forced.algorithm == Algorithm::two_shot_atomic && can_add(facts)) {
    Route route = two_shot_atomic(facts);
    route.reason = kAlgorithmForced;
    return route;
  }
  if (facts.forced.protocol && can_take(facts, *facts.forced.protocol)) {
    return with_protocol(facts, *facts.forced.protocol,
                         "NEARLIGHT_FORCE_PATH or nearlightCommSetPath asks for this protocol");
  }
  if (!facts.gpu) return on_cpu(facts);
  if (facts.two_shot && two_shot_pays(facts, of_two_shot)) {
    return two_shot_atomic_pays(facts) ? two_shot_atomic(facts) : two_shot(facts, of_two_shot);
  }
  if (ll128_is_in_range(facts)) return ll128_on_gpu(facts);
  // Divided rather than multiplied: the bytes times the other ranks may be more than a size can say.
  const auto others = static_cast<std::size_t>(facts.nranks - 1);
  const std::size_t bytes = bytes_of(facts);
  const Table& table = table_of(facts);
  const std::size_t first =
      sums_by_own_code(facts) ? table.sentinel_first_bytes : table.sentinel_any_first_bytes;
  if (algorithm::has_sentinel(facts.type) && bytes >= first / others &&
      bytes <= std::min(sentinel_limit(facts) / others, sentinel_round(facts))) {
    return sentinel_on_gpu(facts);
  }
  return bytes <= table.ll_limit_bytes / others ? ll_on_gpu(facts) : simple_on_gpu(facts);
}

Route elsewhere(Algorithm algorithm, const char* reason) {
  Route route;
  route.algorithm = algorithm;
  route.grid = route.threads = route.run_threads = 0;
  route.reason = reason;
  return route;
}

constexpr const char* kElsewhereForced =
    "NEARLIGHT_FORCE_PATH or nearlightCommSetPath asks for this algorithm";

// null: nothing is in the way.
const char* kept(const Facts& facts) {
  const char* const why = kept_from_nccl(facts.nccl, facts.type, facts.op, bytes_of(facts));
  if (why != nullptr || facts.max_ctas == 0) return why;
  return "not handed to NCCL: it takes as many CTAs as it likes, and max_ctas is set";
}

bool is_past_nccls_first(const Facts& facts) {
  const Table& table = table_of(facts);
  if (!facts.gpu || facts.nccl.version == 0 || table.nccl_first_bytes == 0) return false;
  const auto others = static_cast<std::size_t>(facts.nranks - 1);
  return bytes_of(facts) >= ceil_div(table.nccl_first_bytes, others);
}

// A route with what follows from the rest of it.
Route completed(const Facts& facts, Route route) {
  route.run_threads = threads_that_run(facts, route);
  return route;
}

}  // namespace

bool lines_are_whole(const Facts& facts, bool adds) {
  return facts.gpu && facts.lines > 0 && facts.whole.path == probe::PathType::nvl &&
         facts.whole.stores == probe::LineVerdict::whole &&
         (!adds || facts.whole.adds == probe::LineVerdict::whole);
}

std::string doubt_about_lines(const Facts& facts, Algorithm algorithm) {
  if (!facts.gpu || lines_are_whole(facts, algorithm == Algorithm::two_shot_atomic)) return "";
  return "lines of 128 bytes are not known to arrive whole between these GPUs: " + describe(facts.whole);
}

bool two_shot_fits(const Facts& facts, Protocol protocol) {
  const std::size_t units = ceil_div(bytes_of(facts), unit_bytes(facts, protocol));
  if (protocol == Protocol::ll128) {
    return units >= static_cast<std::size_t>(facts.nranks) && slots_of(facts, protocol) >= 1;
  }
  return units >= static_cast<std::size_t>(facts.nranks) && slots_of(facts, protocol) >= (facts.gpu ? 32 : 4);
}

Route all_reduce(const Facts& facts) {
  if (facts.nranks == 1) {
    Route route;
    route.algorithm = Algorithm::copy;
    route.reason = facts.op == ReduceOp::premul_sum ? "one rank: its input times its factor"
                                                    : "one rank: the result is its input";
    return route;
  }
  if (facts.staged &&
      (facts.forced.algorithm == Algorithm::staged || (facts.forced.fallback && facts.nccl.version == 0)))
    return elsewhere(Algorithm::staged, kElsewhereForced);
  if (facts.forced.fallback && facts.nccl.version != 0) {
    const char* const why = never_by_nccl(facts.nccl, facts.type);
    if (why == nullptr) return elsewhere(Algorithm::nccl, kElsewhereForced);
    Route route = completed(facts, own_route(facts));
    route.reason = why;
    return route;
  }
  if (facts.forced.algorithm != Algorithm::nccl && !is_past_nccls_first(facts)) {
    Route route = completed(facts, own_route(facts));
    if (const char* const why = left_aside_for_all(facts, facts.forced); why != nullptr) route.reason = why;
    return route;
  }
  if (const char* const why = kept(facts); why != nullptr) {
    Route route = completed(facts, own_route(facts));
    route.reason = why;
    return route;
  }
  if (facts.forced.algorithm == Algorithm::nccl) return elsewhere(Algorithm::nccl, kElsewhereForced);
  return elsewhere(Algorithm::nccl,
                   because<"GPU, beyond what nearlight wins: handed to the attached NCCL">(table_of(facts)));
}

Result<Route> forced_nccl(const Facts& facts) {
  if (facts.nccl.version == 0) {
    return failure(Code::invalid_argument,
                   "algorithm: nccl, but no NCCL communicator is attached to this one");
  }
  if (const char* const why = kept(facts); why != nullptr)
    return failure(Code::unsupported, "algorithm: nccl: %s", why);
  return elsewhere(Algorithm::nccl, "the caller asked for this algorithm");
}

const char* left_aside_for_all(const Facts& facts, const Forced& forced) {
  if (!facts.gpu || facts.nranks == 1) return nullptr;
  const bool adds = forced.algorithm == Algorithm::two_shot_atomic;
  if (!adds && forced.protocol != Protocol::ll128) return nullptr;
  if (adds && facts.deterministic) {
    return "two_shot_atomic is left aside: it adds in the order of arrival, and the communicator is to be "
           "deterministic";
  }
  if (adds && !facts.adds_lines) return "two_shot_atomic is left aside: not below compute capability 9.0";
  if (facts.lines == 0) return "lines of 128 bytes are left aside: this communicator has no memory for them";
  if (!lines_are_whole(facts, adds)) {
    return "lines of 128 bytes are left aside: they are not known to arrive whole between these GPUs "
           "(nearlight info tells why)";
  }
  return nullptr;
}

Result<Route> forced_staged(const Facts& facts) {
  if (facts.staged) return elsewhere(Algorithm::staged, "the caller asked for this algorithm");
  return failure(Code::unsupported, "algorithm: staged: %s",
                 !facts.gpu                ? "the CPU makes the calls of these ranks anyhow"
                 : facts.nccl.version != 0 ? "calls of these ranks go to the attached NCCL instead"
                                           : "these ranks have no staging buffer");
}

Facts without_nccl(Facts facts) {
  if (facts.forced.algorithm && algorithm::is_elsewhere(*facts.forced.algorithm))
    facts.forced.algorithm.reset();
  facts.forced.fallback = facts.staged = false;
  facts.nccl = {};
  return facts;
}

std::uint32_t threads_that_run(const Facts& facts, const Route& route) {
  if (!facts.gpu || route.algorithm == Algorithm::copy || algorithm::is_elsewhere(route.algorithm))
    return route.threads;
  const algorithm::Cut cut{facts.type,      facts.op,   route.algorithm, route.protocol,
                           bytes_of(facts), route.grid, route.threads,   std::max(1u, route.held),
                           facts.packets};
  return algorithm::threads_that_run(cut, algorithm::fit_of(cut, 0));
}

const char* protocol_name(Algorithm algorithm, Protocol protocol) {
  return algorithm::is_elsewhere(algorithm) ? "none" : algorithm::name_of(protocol);
}

Result<Route> forced(const Facts& facts, Protocol protocol) {
  if (!algorithm::carries(protocol, facts.type)) {
    return failure(Code::invalid_argument, "protocol: %s takes a type with NaNs, and %s has none",
                   name_of(protocol), name_of(facts.type));
  }
  if (protocol == Protocol::ll128 && facts.lines == 0) {
    return failure(
        Code::invalid_argument,
        "protocol: ll128 needs lines, and this communicator has none for the call: say how many in "
        "its configuration (lines)");
  }
  if (protocol == Protocol::ll128) {
    if (const std::string doubt = doubt_about_lines(facts, Algorithm::one_shot); !doubt.empty())
      return failure(Code::unsupported, "protocol: ll128: %s", doubt.c_str());
  }
  return completed(facts, with_protocol(facts, protocol, "the caller asked for this protocol"));
}

Result<Route> forced_two_shot_atomic(const Facts& facts) {
  const char* const name = name_of(Algorithm::two_shot_atomic);
  if (facts.deterministic) {
    return failure(Code::invalid_argument,
                   "algorithm: %s adds in the order of arrival, and the communicator is to be deterministic "
                   "(deterministic in its configuration, else NEARLIGHT_DETERMINISTIC)",
                   name);
  }
  if (!algorithm::reduces(Algorithm::two_shot_atomic, facts.type, facts.op)) {
    return failure(Code::invalid_argument, "algorithm: %s is for %s, not for %s %s", name,
                   algorithm::kAtomicCode, name_of(facts.type), name_of(facts.op));
  }
  if (!facts.two_shot || (facts.gpu && !facts.adds_lines)) {
    return failure(Code::unsupported, "algorithm: there is no %s %s", name,
                   facts.two_shot ? "below compute capability 9.0" : "for this kind of call");
  }
  NL_TRY_ASSIGN(Route one_shot, forced(facts, Protocol::ll128));
  if (const std::string doubt = doubt_about_lines(facts, Algorithm::two_shot_atomic); !doubt.empty())
    return failure(Code::unsupported, "algorithm: %s: %s", name, doubt.c_str());
  one_shot.reason =
      "too small for two_shot_atomic, which the caller asked for: not every rank would own a part";
  return can_add(facts) ? completed(facts, two_shot_atomic(facts)) : one_shot;
}

Result<Route> forced_two_shot(const Facts& facts, Protocol protocol) {
  if (!facts.two_shot)
    return failure(Code::unsupported, "algorithm: there is no two_shot for this kind of call");
  if (!algorithm::go_together(Algorithm::two_shot, protocol)) {
    return failure(Code::invalid_argument, "protocol: two_shot goes with ll or sentinel, not with %s",
                   name_of(protocol));
  }
  NL_TRY_ASSIGN(Route one_shot, forced(facts, protocol));
  one_shot.reason = "too small for two_shot, which the caller asked for: not every rank would own a part";
  if (!two_shot_fits(facts, protocol)) return one_shot;
  return completed(facts, two_shot(facts, protocol));
}

}  // namespace nearlight::route
