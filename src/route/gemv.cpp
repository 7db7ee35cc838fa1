#include "route/gemv.hpp"

#include <algorithm>

#include "algorithm/gemv.hpp"
#include "route/because.hpp"

namespace nearlight::route {

namespace {

constexpr const char* kOneWay =
    "there is one way for products: NEARLIGHT_FORCE_PATH and nearlightCommSetPath are left aside";

}  // namespace

Result<Route> gemv(const Facts& facts, const GemvFacts& what) {
  const Table& table = facts.table != nullptr ? *facts.table : facts.gpu ? kH200Table : kCpuTable;
  Route route;
  route.algorithm = Algorithm::one_shot;
  route.protocol = Protocol::sentinel;
  const Forced& forced = facts.forced;
  const bool elsewhere =
      forced.fallback || forced.algorithm || (forced.protocol && forced.protocol != Protocol::sentinel);
  if (facts.gpu && facts.nccl.capability != 0 && facts.nccl.capability < algorithm::kGemvCapability) {
    return failure(Code::unsupported,
                   "products: a GPU of the group has compute capability %d.%d, and 8.0 it takes",
                   facts.nccl.capability / 10, facts.nccl.capability % 10);
  }
  // One rank alone sends nothing.
  if (const std::uint32_t needs = algorithm::packets_of_tile(what.tokens);
      facts.nranks > 1 && what.gathered_vecs == 0 && needs > facts.packets) {
    return failure(Code::unsupported,
                   "packets: a region has %u, and what eight outputs of %u tokens take is %u", facts.packets,
                   what.tokens, needs);
  }
  if (facts.gpu && facts.nranks > 1 && what.gathered_vecs != 0) {
    const std::uint64_t bytes = std::uint64_t{what.tokens} * exec::tile_token_stride(what.gathered_vecs);
    const std::uint32_t most = algorithm::gemv_shared(facts.large_shared);
    if (bytes > most) {
      return failure(Code::unsupported,
                     "tokens: %u of %u gathered elements take %llu bytes of a CTA, which has %u", what.tokens,
                     what.gathered_vecs * 8, static_cast<unsigned long long>(bytes), most);
    }
  }
  const std::uint32_t regions = !facts.gpu            ? 1
                                : facts.max_ctas == 0 ? facts.regions
                                                      : std::min(facts.regions, facts.max_ctas);
  const std::uint32_t width = std::min(regions, what.tiles);
  if (what.grid > width) {
    return failure(Code::invalid_argument, "grid: %u CTAs are more than the %u that there may be", what.grid,
                   width);
  }
  if (!facts.gpu) {
    route.reason = elsewhere ? kOneWay
                   : what.gathered_vecs != 0
                       ? because<"CPU: the tokens by packets, and then the product">(table)
                       : because<"CPU: a product's tiles by packets, sent one by one">(table);
    return route;
  }
  route.grid = what.grid != 0 ? what.grid : width;
  route.threads = route.run_threads = exec::kTileThreads;
  const bool limited = facts.max_ctas != 0 && route.grid == facts.max_ctas;
  route.reason =
      elsewhere ? kOneWay
      : what.gathered_vecs != 0
          ? because<"GPU: the matrix by all CTAs, each gathers the tokens for itself (not measured yet)">(
                table, limited)
          : because<"GPU: the matrix by all CTAs, each tile sent at once (not measured yet)">(table, limited);
  return route;
}

}  // namespace nearlight::route
