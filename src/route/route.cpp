#include "route/route.hpp"

#include <algorithm>

#include "algorithm/fit.hpp"
#include "route/because.hpp"

namespace nearlight::route {

namespace {

constexpr std::size_t kPackBytes = 8;
constexpr std::size_t kPacketBytes = 16;
constexpr std::size_t kLineBytes = 120, kWarpLines = 4;

const Table& table_of(const Facts& facts) {
  return facts.table != nullptr ? *facts.table : facts.gpu ? kH200Table : kCpuTable;
}

std::size_t bytes_of(const Facts& facts) { return facts.count * size_of(facts.type); }

std::size_t ceil_div(std::size_t a, std::size_t b) { return (a + b - 1) / b; }

std::uint32_t up_to(std::size_t wanted, std::uint32_t limit) {
  return static_cast<std::uint32_t>(std::clamp<std::size_t>(wanted, 1, std::max(1u, limit)));
}

Route on_cpu(const Facts& facts) {
  Route route;
  const bool small = bytes_of(facts) <= table_of(facts).ll_limit_bytes;
  route.protocol = small ? Protocol::ll : Protocol::simple;
  route.reason = small ? because<"CPU, small: the flag travels with the data">(table_of(facts))
                       : because<"CPU, large: plain copies, one flag a chunk">(table_of(facts));
  return route;
}

// The most CTAs.
std::uint32_t width_of(const Facts& facts) {
  return facts.max_ctas == 0 ? facts.regions : std::min(facts.regions, facts.max_ctas);
}
std::uint32_t few_regions(const Facts& facts) {
  return std::min(width_of(facts), static_cast<std::uint32_t>(table_of(facts).few_ctas));
}
// Whether max_ctas is what keeps the grid from being larger.
bool is_limited(const Facts& facts, const Route& route) {
  return facts.max_ctas != 0 && route.grid == facts.max_ctas;
}

Route ll_on_gpu(const Facts& facts) {
  Route route;
  const std::uint32_t regions = few_regions(facts);
  route.protocol = Protocol::ll;
  const std::size_t packs = ceil_div(bytes_of(facts), kPackBytes);
  // Measured on 2 x H200 in graphs: one CTA for what fits it, 128 threads each (a few per cent faster than
  // one warp a CTA up to 8 KiB, the same beyond), and large CTAs once there are no more to add.
  const Table& table = table_of(facts);
  const auto large = static_cast<std::uint32_t>(packs <= 8192 ? table.ll_threads : table.ll_large_threads);
  // No warp without a pack: the kernel without conditions takes the message then.
  const std::uint32_t threads = std::min(large, up_to(ceil_div(packs, 32), large / 32) * 32);
  route.threads = std::min(threads, std::max(32u, facts.slots / 32 * 32));
  route.held = 1;
  const std::uint32_t most =
      algorithm::has_own_code(facts.type, facts.op) ? algorithm::max_held(facts.nranks) : 1;
  while (route.held < most && std::size_t{route.threads} * route.held * regions < packs &&
         route.threads * route.held * 2 <= facts.slots) {
    route.held *= 2;
  }
  route.grid = up_to(ceil_div(packs, std::size_t{route.threads} * route.held), regions);
  route.reason = because<"GPU, small: the flag travels with the data, no fence">(table_of(facts),
                                                                                 is_limited(facts, route));
  return route;
}

// Whether there is code for a sum of this type: several packets of a thread in flight.
bool sums_by_own_code(const Facts& facts) {
  return facts.op == ReduceOp::sum && algorithm::has_own_code(facts.type, facts.op);
}
// Where the sentinel ends, by one rank's bytes.
std::size_t sentinel_limit(const Facts& facts) {
  const Table& table = table_of(facts);
  return sums_by_own_code(facts) ? table.sentinel_limit_bytes : table.sentinel_any_limit_bytes;
}

// Bytes that the packets of all regions take in one round.
std::size_t sentinel_round(const Facts& facts) {
  return std::size_t{width_of(facts)} * (facts.packets / 32 * 32) * kPacketBytes;
}

// The CTAs of a message of so many units, of which a region takes `slots` in a round: few, and more of them
// for what the few could not hold in registers (see docs/dev/lab.md) or in one round.
std::uint32_t regions_for(const Facts& facts, std::size_t units, std::size_t slots) {
  const std::size_t held = std::min<std::size_t>(std::size_t{512} * 4, slots);
  return units > few_regions(facts) * held ? width_of(facts) : few_regions(facts);
}

Route sentinel_on_gpu(const Facts& facts) {
  Route route;
  route.protocol = Protocol::sentinel;
  route.held = 1;
  const std::size_t packets = ceil_div(bytes_of(facts), kPacketBytes);
  // A packet a thread, in CTAs as small as the regions allow.
  const std::uint32_t regions = regions_for(facts, packets, facts.packets / 32 * 32);
  route.threads = packets <= 32 ? 32 : 128;
  while (route.threads < 512 && std::size_t{route.threads} * regions < packets) route.threads *= 2;
  route.threads = std::min(route.threads, std::max(32u, facts.packets / 32 * 32));
  // Several packets a thread, where two ranks share them evenly: in flight together.
  if (facts.nranks == 2) {
    while (route.held < 4 && std::size_t{route.threads} * route.held * regions < packets &&
           route.threads * route.held * 2 <= facts.packets) {
      route.held *= 2;
    }
  }
  route.grid = up_to(ceil_div(packets, std::size_t{route.threads} * route.held), regions);
  route.reason = because<"GPU, middle: full payload that is its own arrival, no flag and no fence">(
      table_of(facts), is_limited(facts, route));
  return route;
}

Route simple_on_gpu(const Facts& facts) {
  Route route;
  route.protocol = Protocol::simple;
  route.threads = static_cast<std::uint32_t>(table_of(facts).simple_threads);
  route.grid = up_to(ceil_div(bytes_of(facts), table_of(facts).simple_cta_bytes), few_regions(facts));
  route.reason = because<"GPU, large: full payload, one release flag a chunk">(table_of(facts),
                                                                               is_limited(facts, route));
  return route;
}

// What travels in one piece: a warp's lines of LL128, of which CPUs have one at a time.
std::size_t unit_bytes(const Facts& facts, Protocol protocol) {
  if (protocol == Protocol::ll128) return kLineBytes * (facts.gpu ? kWarpLines : 1);
  return protocol == Protocol::ll ? kPackBytes : kPacketBytes;
}
// Slots a source, in units of the protocol; of LL128 those of the two-shot.
std::uint32_t slots_of(const Facts& facts, Protocol protocol) {
  if (protocol == Protocol::ll128)
    return std::min(facts.lines, facts.sums) / static_cast<std::uint32_t>(facts.gpu ? kWarpLines : 1);
  return protocol == Protocol::ll ? facts.slots : facts.packets;
}

Route ll128_on_gpu(const Facts& facts) {
  Route route;
  route.protocol = Protocol::ll128;
  const std::size_t units = ceil_div(bytes_of(facts), unit_bytes(facts, Protocol::ll128));
  // A unit a warp, in CTAs as small as the regions allow.
  const std::uint32_t regions = few_regions(facts);
  route.threads = units <= 1 ? 32 : 128;
  while (route.threads < 512 && std::size_t{route.threads / 32} * regions < units) route.threads *= 2;
  route.grid = up_to(ceil_div(units, route.threads / 32), regions);
  route.reason = because<
      "GPU, middle, no value to spare for a sentinel: lines of 120 bytes that tell of their arrival (limits "
      "not measured yet)">(table_of(facts), is_limited(facts, route));
  return route;
}

Route two_shot(const Facts& facts, Protocol protocol) {
  Route route;
  if (!facts.gpu) {
    route = on_cpu(facts);
  } else if (protocol == Protocol::ll) {
    route = ll_on_gpu(facts);
  } else {
    route = sentinel_on_gpu(facts);
  }
  if (facts.gpu) {
    // One unit in flight a thread.
    const std::size_t units = ceil_div(bytes_of(facts), unit_bytes(facts, protocol));
    // Contributions have half of a source's slots, and a region takes those of all ranks.
    const std::uint32_t regions = regions_for(
        facts, units, std::size_t{slots_of(facts, protocol) / 2} * static_cast<std::size_t>(facts.nranks));
    route.threads = std::min<std::uint32_t>(route.threads, slots_of(facts, protocol) / 32 * 32);
    if (regions > algorithm::kFewCtas) route.threads = std::min(route.threads, algorithm::kSharedSmThreads);
    route.grid = up_to(ceil_div(units, route.threads), regions);
    route.held = 1;
  }
  route.algorithm = Algorithm::two_shot;
  route.protocol = protocol;
  route.reason = because<
      "more than two ranks: each reduces its part, so that less is sent (from where on is worked out, not "
      "measured)">(table_of(facts), is_limited(facts, route));
  return route;
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
Route two_shot_atomic(const Facts& facts) {
  Route route;
  if (facts.gpu) {
    route = ll128_on_gpu(facts);
    const std::size_t units = ceil_div(bytes_of(facts), unit_bytes(facts, Protocol::ll128));
    const std::uint32_t regions = units > std::size_t{few_regions(facts)} * slots_of(facts, Protocol::ll128) *
                                              static_cast<std::size_t>(facts.nranks)
                                      ? width_of(facts)
                                      : few_regions(facts);
    if (regions > algorithm::kFewCtas) route.threads = std::min(route.threads, algorithm::kSharedSmThreads);
    route.grid = up_to(ceil_div(units, route.threads / 32), regions);
  } else {
    route = on_cpu(facts);
  }
  route.algorithm = Algorithm::two_shot_atomic;
  route.protocol = Protocol::ll128;
  route.reason = because<
      "more than two ranks, and not deterministic: each adds to the others' parts (from where on is worked "
      "out, not measured)">(table_of(facts), is_limited(facts, route));
  return route;
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
