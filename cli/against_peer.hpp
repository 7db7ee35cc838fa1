// What the route chose, beside a peer that was measured in the same run.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cli/results.hpp"

namespace nearlight::cli {

// How much slower than NCCL the chosen path may be before the route counts as wrong: such a call should have
// been handed over.
inline constexpr double kSlowerThanNccl = 1.05;

// One message of one kind (collective, type, operator, ranks, mode), p50 of both. nearlight's is what the
// route chose: nothing was forced, the scratch is the default.
struct AgainstPeer {
  std::string kind;  // "all_reduce bf16 sum, 2 ranks, mode graph"
  std::uint64_t bytes = 0;
  double own_us = 0, peer_us = 0;

  double ratio() const { return own_us / peer_us; }
};
// By kind, in the file's order, then by size. Of several rows of a message (one for each slot offset) the one
// with the median p50 stands for them.
std::vector<AgainstPeer> against_peer(const ResultFile& file, std::string_view peer);

// Those that are slower than `most` times the peer, one line each.
std::vector<std::string> slower_than_peer(const ResultFile& file, std::string_view peer, double most);

// Where one overtakes the other, one line a kind: "all_reduce bf16 sum, 2 ranks, mode graph: nearlight is
// faster than nccl at every size, 128 B to 16 KiB", or "... up to 8 MiB, from 16 MiB on nccl is".
std::vector<std::string> crossovers_with(const ResultFile& file, std::string_view peer);

}  // namespace nearlight::cli
