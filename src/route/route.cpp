#include "route/route.hpp"

#include <algorithm>

namespace nearlight::route {

namespace {

constexpr std::size_t kPackBytes = 8;

std::size_t bytes_of(const Facts& facts) { return facts.count * size_of(facts.type); }

std::size_t ceil_div(std::size_t a, std::size_t b) { return (a + b - 1) / b; }

std::uint32_t up_to(std::size_t wanted, std::uint32_t limit) {
  return static_cast<std::uint32_t>(std::clamp<std::size_t>(wanted, 1, std::max(1u, limit)));
}

Route on_cpu(const Facts& facts) {
  Route route;
  const bool small = bytes_of(facts) <= kHostLlLimitBytes;
  route.protocol = small ? Protocol::ll : Protocol::simple;
  route.reason =
      small ? "CPU, small: the flag travels with the data" : "CPU, large: plain copies, one flag a chunk";
  return route;
}

Route ll_on_gpu(const Facts& facts) {
  Route route;
  route.protocol = Protocol::ll;
  const std::size_t packs = ceil_div(bytes_of(facts), kPackBytes);
  // Measured on 2 x H200 in graphs: one warp for what fits it, then 128 threads a CTA (a few per cent faster
  // than one warp a CTA up to 8 KiB, the same beyond), and large CTAs once there are no more to add.
  const std::uint32_t threads = packs <= 32 ? 32 : packs <= 8192 ? 128 : 512;
  route.threads = std::min(threads, std::max(32u, facts.slots / 32 * 32));
  route.held = 1;
  const std::uint32_t most = !algorithm::has_own_code(facts.type, facts.op) ? 1
                             : facts.nranks <= 2                            ? 4
                             : facts.nranks <= 4                            ? 2
                                                                            : 1;
  while (route.held < most && std::size_t{route.threads} * route.held * facts.regions < packs &&
         route.threads * route.held * 2 <= facts.slots) {
    route.held *= 2;
  }
  route.grid = up_to(ceil_div(packs, std::size_t{route.threads} * route.held), facts.regions);
  route.reason = "GPU, small: the flag travels with the data, no fence";
  return route;
}

Route simple_on_gpu(const Facts& facts) {
  Route route;
  route.protocol = Protocol::simple;
  route.threads = 512;
  // At least 8 KiB a CTA: below that a flag costs more than the bytes it covers.
  route.grid = up_to(ceil_div(bytes_of(facts), std::size_t{8192}), facts.regions);
  route.reason = "GPU, large: full payload, one release flag a chunk";
  return route;
}

}  // namespace

Route all_reduce(const Facts& facts) {
  if (facts.nranks == 1) {
    Route route;
    route.algorithm = Algorithm::copy;
    route.reason = facts.op == ReduceOp::premul_sum ? "one rank: its input times its factor"
                                                    : "one rank: the result is its input";
    return route;
  }
  if (!facts.gpu) return on_cpu(facts);
  // Divided rather than multiplied: the bytes times the other ranks may be more than a size can say.
  return bytes_of(facts) <= kGpuLlLimitBytes / static_cast<std::size_t>(facts.nranks - 1)
             ? ll_on_gpu(facts)
             : simple_on_gpu(facts);
}

Route forced(const Facts& facts, Protocol protocol) {
  Route route = !facts.gpu                 ? on_cpu(facts)
                : protocol == Protocol::ll ? ll_on_gpu(facts)
                                           : simple_on_gpu(facts);
  route.protocol = protocol;
  route.reason = "the caller asked for this protocol";
  return route;
}

}  // namespace nearlight::route
