#include "route/fused.hpp"

#include <algorithm>
#include <bit>

#include "route/because.hpp"

namespace nearlight::route {

namespace {

constexpr std::uint32_t ceil_div(std::uint32_t a, std::uint32_t b) { return (a + b - 1) / b; }
constexpr std::uint32_t whole_warps(std::uint32_t threads) { return ceil_div(threads, 32) * 32; }

// A part of a row smaller than this gains nothing by being another CTA's.
constexpr std::uint32_t kLeastPart = 128;

constexpr const char* kOneWay =
    "there is one way for fused calls: NEARLIGHT_FORCE_PATH and nearlightCommSetPath are left aside";

// The largest power of two by which rows can be spread.
std::uint32_t spread_of(const Facts& facts, const FusedFacts& rows, std::uint32_t ctas) {
  if (rows.normalises && !facts.clusters) return 1;
  std::uint32_t spread = 1;
  while (spread < kMostSpread && std::uint64_t{rows.rows} * spread * 2 <= ctas &&
         rows.vecs / (spread * 2) >= kLeastPart) {
    spread *= 2;
  }
  return spread;
}

Status check_wanted(const Facts& facts, const FusedFacts& rows, std::uint32_t width) {
  const std::uint32_t spread = rows.spread;
  if (spread != 0 && (!std::has_single_bit(spread) || spread > kMostSpread || spread > width)) {
    return failure(Code::invalid_argument, "spread: %u is not 1, 2, 4 or 8 of the %u CTAs", spread, width);
  }
  if (spread > 1 && rows.normalises && !facts.clusters) {
    return failure(Code::unsupported,
                   "spread: %u CTAs of a row would be a cluster, which these GPUs have not", spread);
  }
  if (rows.grid > width || rows.grid % std::max(1u, spread) != 0) {
    return failure(Code::invalid_argument, "grid: %u is no multiple of %u up to %u", rows.grid,
                   std::max(1u, spread), width);
  }
  return {};
}

}  // namespace

Result<FusedRoute> fused(const Facts& facts, const FusedFacts& rows) {
  const Table& table = facts.table != nullptr ? *facts.table : facts.gpu ? kH200Table : kCpuTable;
  FusedRoute route;
  route.algorithm = Algorithm::one_shot;
  route.protocol = Protocol::sentinel;
  const Forced& forced = facts.forced;
  const bool elsewhere =
      forced.fallback || forced.algorithm || (forced.protocol && forced.protocol != Protocol::sentinel);
  if (!facts.gpu) {
    NL_TRY(check_wanted(facts, rows, 1));
    route.reason = elsewhere ? kOneWay : because<"CPU: rows by packets that are their own arrival">(table);
    return route;
  }
  const std::uint32_t width = facts.max_ctas == 0 ? facts.regions : std::min(facts.regions, facts.max_ctas);
  NL_TRY(check_wanted(facts, rows, width));
  const std::uint32_t few = std::min(width, static_cast<std::uint32_t>(table.few_ctas));
  const std::uint32_t most = rows.grid != 0 ? rows.grid : few;
  route.spread = rows.spread != 0 ? rows.spread : spread_of(facts, rows, most);
  while (rows.spread == 0 && rows.grid % route.spread != 0) route.spread /= 2;
  const std::uint32_t part = ceil_div(rows.vecs, route.spread);
  std::uint32_t teams = std::min(rows.rows, std::max(1u, most / route.spread));
  if (part > facts.packets) {
    route.held = 0;
    route.threads = std::min(algorithm::kMaxThreads, whole_warps(std::min(part, facts.packets)));
  } else if (rows.rows <= teams && part <= 2 * algorithm::kMaxThreads) {
    route.once = true;
    route.held = part <= algorithm::kMaxThreads ? 1 : 2;
    route.threads = whole_warps(ceil_div(part, route.held));
  } else {
    route.held = 4;
    route.threads = whole_warps(ceil_div(part, 4));
    // Two of these CTAs fit an SM: there may be as many as there are regions.
    if (rows.grid == 0 && route.threads <= algorithm::kSharedSmThreads)
      teams = std::min(rows.rows, std::max(1u, width / route.spread));
    route.at_once = std::min(facts.packets / part, ceil_div(rows.rows, teams));
  }
  route.run_threads = route.threads;
  route.grid = teams * route.spread;
  const bool limited = facts.max_ctas != 0 && route.grid == facts.max_ctas;
  route.reason =
      elsewhere ? kOneWay
      : route.spread > 1
          ? because<"GPU: few rows, each shared by several CTAs (not measured yet)">(table, limited)
          : because<"GPU: a row a CTA, by packets that are their own arrival (not measured yet)">(table,
                                                                                                  limited);
  return route;
}

}  // namespace nearlight::route
