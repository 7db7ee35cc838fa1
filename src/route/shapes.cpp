#include "route/shapes.hpp"

#include <algorithm>

#include "algorithm/fit.hpp"
#include "route/because.hpp"

namespace nearlight::route {

namespace {

constexpr std::size_t kPackBytes = 8;
constexpr std::size_t kPacketBytes = 16;
constexpr std::size_t kLineBytes = 120, kWarpLines = 4;

std::uint32_t up_to(std::size_t wanted, std::uint32_t limit) {
  return static_cast<std::uint32_t>(std::clamp<std::size_t>(wanted, 1, std::max(1u, limit)));
}

// Whether max_ctas is what keeps the grid from being larger.
bool is_limited(const Facts& facts, const Route& route) {
  return facts.max_ctas != 0 && route.grid == facts.max_ctas;
}

// The CTAs of a message of so many units, of which a region takes `slots` in a round: few, and more of them
// for what the few could not hold in registers (see docs/dev/lab.md) or in one round.
std::uint32_t regions_for(const Facts& facts, std::size_t units, std::size_t slots) {
  const std::size_t held = std::min<std::size_t>(std::size_t{512} * 4, slots);
  return units > few_regions(facts) * held ? width_of(facts) : few_regions(facts);
}

}  // namespace

const Table& table_of(const Facts& facts) {
  return facts.table != nullptr ? *facts.table : facts.gpu ? kH200Table : kCpuTable;
}

std::size_t bytes_of(const Facts& facts) { return facts.count * size_of(facts.type); }

std::uint32_t width_of(const Facts& facts) {
  return facts.max_ctas == 0 ? facts.regions : std::min(facts.regions, facts.max_ctas);
}
std::uint32_t few_regions(const Facts& facts) {
  return std::min(width_of(facts), static_cast<std::uint32_t>(table_of(facts).few_ctas));
}
std::size_t sentinel_round(const Facts& facts) {
  return std::size_t{width_of(facts)} * (facts.packets / 32 * 32) * kPacketBytes;
}

std::size_t unit_bytes(const Facts& facts, Protocol protocol) {
  if (protocol == Protocol::ll128) return kLineBytes * (facts.gpu ? kWarpLines : 1);
  return protocol == Protocol::ll ? kPackBytes : kPacketBytes;
}
std::uint32_t slots_of(const Facts& facts, Protocol protocol) {
  if (protocol == Protocol::ll128)
    return std::min(facts.lines, facts.sums) / static_cast<std::uint32_t>(facts.gpu ? kWarpLines : 1);
  return protocol == Protocol::ll ? facts.slots : facts.packets;
}

Route on_cpu(const Facts& facts) {
  Route route;
  const bool small = bytes_of(facts) <= table_of(facts).ll_limit_bytes;
  route.protocol = small ? Protocol::ll : Protocol::simple;
  route.reason = small ? because<"CPU, small: the flag travels with the data">(table_of(facts))
                       : because<"CPU, large: plain copies, one flag a chunk">(table_of(facts));
  return route;
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

}  // namespace nearlight::route
