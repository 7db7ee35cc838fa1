// How a message is cut by each way that it can take: threads, packs that they hold, CTAs. Which way it takes
// is route.hpp's.
#pragma once

#include <cstddef>
#include <cstdint>

#include "route/route.hpp"

namespace nearlight::route {

const Table& table_of(const Facts& facts);
std::size_t bytes_of(const Facts& facts);
constexpr std::size_t ceil_div(std::size_t a, std::size_t b) { return (a + b - 1) / b; }

// The most CTAs.
std::uint32_t width_of(const Facts& facts);
std::uint32_t few_regions(const Facts& facts);

// Bytes that the packets of all regions take in one round.
std::size_t sentinel_round(const Facts& facts);

// What travels in one piece: a warp's lines of LL128, of which CPUs have one at a time.
std::size_t unit_bytes(const Facts& facts, Protocol protocol);
// Slots a source, in units of the protocol; of LL128 those of the two-shot.
std::uint32_t slots_of(const Facts& facts, Protocol protocol);

Route on_cpu(const Facts& facts);
Route ll_on_gpu(const Facts& facts);
Route sentinel_on_gpu(const Facts& facts);
Route simple_on_gpu(const Facts& facts);
Route ll128_on_gpu(const Facts& facts);
Route two_shot(const Facts& facts, Protocol protocol);
Route two_shot_atomic(const Facts& facts);

}  // namespace nearlight::route
