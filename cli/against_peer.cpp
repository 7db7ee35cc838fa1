#include "cli/against_peer.hpp"

#include <algorithm>
#include <cstdio>
#include <map>
#include <tuple>

#include "cli/demo_table.hpp"

namespace nearlight::cli {

namespace {

using Kind = std::tuple<std::string, std::string, std::string, int, Mode>;
// p50 of a message's rows: ours, the peer's.
struct Times {
  std::vector<double> own, peer;
};
struct OfKind {
  Kind kind;
  std::map<std::uint64_t, Times> sizes;
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[(values.size() - 1) / 2];
}

std::string in_words(const Kind& kind) {
  const auto& [collective, dtype, op, ranks, mode] = kind;
  return collective + " " + dtype + " " + op + ", " + std::to_string(ranks) + " ranks, mode " + name_of(mode);
}

}  // namespace

std::vector<AgainstPeer> against_peer(const ResultFile& file, std::string_view peer) {
  std::vector<OfKind> kinds;
  for (const ResultRow& row : file.rows) {
    const bool own = row.impl == kOwnImpl && row.forced.empty() && row.scratch == 0;
    if (!own && row.impl != peer) continue;
    const Kind kind{row.collective, row.dtype, row.op, row.ranks, row.mode};
    auto found =
        std::find_if(kinds.begin(), kinds.end(), [&](const OfKind& one) { return one.kind == kind; });
    if (found == kinds.end()) found = kinds.insert(kinds.end(), {kind, {}});
    Times& times = found->sizes[row.bytes];
    (own ? times.own : times.peer).push_back(row.p50_us);
  }
  std::vector<AgainstPeer> all;
  for (const OfKind& one : kinds) {
    for (const auto& [bytes, times] : one.sizes) {
      if (times.own.empty() || times.peer.empty()) continue;
      all.push_back({in_words(one.kind), bytes, median(times.own), median(times.peer)});
    }
  }
  return all;
}

std::vector<std::string> slower_than_peer(const ResultFile& file, std::string_view peer, double most) {
  std::vector<std::string> lines;
  for (const AgainstPeer& one : against_peer(file, peer)) {
    if (one.ratio() <= most) continue;
    char text[200];
    std::snprintf(text, sizeof text, "%s, %s: %.4g us, %.*s %.4g us, so %.2f times as long", one.kind.c_str(),
                  size_text(one.bytes).c_str(), one.own_us, static_cast<int>(peer.size()), peer.data(),
                  one.peer_us, one.ratio());
    lines.emplace_back(text);
  }
  return lines;
}

std::vector<std::string> crossovers_with(const ResultFile& file, std::string_view peer) {
  const std::vector<AgainstPeer> all = against_peer(file, peer);
  std::vector<std::string> lines;
  for (std::size_t first = 0; first < all.size();) {
    std::size_t end = first;
    while (end < all.size() && all[end].kind == all[first].kind) ++end;
    // The peer has what lies behind the last size at which ours was faster.
    std::size_t ours_end = end;
    while (ours_end > first && all[ours_end - 1].ratio() > 1) --ours_end;
    const std::string faster = all[first].kind + ": nearlight is faster than " + std::string(peer);
    const auto range = size_text(all[first].bytes) + " to " + size_text(all[end - 1].bytes);
    const auto slower = std::count_if(all.begin() + static_cast<std::ptrdiff_t>(first),
                                      all.begin() + static_cast<std::ptrdiff_t>(ours_end),
                                      [](const AgainstPeer& one) { return one.ratio() > 1; });
    std::string line;
    if (ours_end == first) {
      line = faster + " at no size, " + range;
    } else if (ours_end == end) {
      line = faster + " at every size, " + range;
    } else {
      line = faster + " up to " + size_text(all[ours_end - 1].bytes) + ", from " +
             size_text(all[ours_end].bytes) + " on " + std::string(peer) + " is";
    }
    if (slower > 0) line += " (but for " + std::to_string(slower) + " sizes below)";
    lines.push_back(line);
    first = end;
  }
  return lines;
}

}  // namespace nearlight::cli
