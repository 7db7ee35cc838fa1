// What must stand in the trace of the ladder's rung 8 (examples/ladder/8_overlap.cpp): two groups of ranks,
// one that waits for each tile and one that computes the next one meanwhile.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "trace/rank_trace.hpp"

namespace nearlight::test {

inline void expect_overlap_timeline(std::vector<trace::RankTrace> ranks) {
  constexpr int kTiles = 16;
  using Spans = std::map<std::string, trace::RankTrace::Span>;
  trace::align(ranks);
  std::map<std::uint64_t, std::vector<int>> overlapped;  // by group: of each rank's tiles
  std::map<std::uint64_t, std::vector<std::pair<const trace::RankTrace*, Spans>>> groups;
  for (const auto& rank : ranks) {
    auto timeline = rank.spans;
    std::sort(timeline.begin(), timeline.end(), [](const auto& a, const auto& b) {
      return std::pair(a.track, a.begin_ns) < std::pair(b.track, b.begin_ns);
    });
    ASSERT_EQ(timeline.size(), 3u * kTiles);
    Spans spans;
    for (std::size_t i = 0; i < timeline.size(); ++i) {
      if (i > 0 && timeline[i].track == timeline[i - 1].track) {
        EXPECT_GE(timeline[i].begin_ns, timeline[i - 1].end_ns) << timeline[i].name;
      }
      spans[timeline[i].name] = timeline[i];
    }
    int beside = 0;
    for (int tile = 0; tile < kTiles; ++tile) {
      const std::string number = std::to_string(tile), next = std::to_string(tile + 1);
      ASSERT_TRUE(spans.contains("compute " + number) && spans.contains("wait " + number) &&
                  spans.contains("exchange " + number));
      const auto &compute = spans["compute " + number], &wait = spans["wait " + number],
                 &exchange = spans["exchange " + number];
      EXPECT_GT(compute.end_ns, compute.begin_ns);
      EXPECT_GE(exchange.begin_ns, compute.end_ns);
      EXPECT_GE(wait.begin_ns, exchange.begin_ns);
      EXPECT_EQ(wait.end_ns, exchange.end_ns);
      EXPECT_EQ(exchange.to, rank.rank == 0 ? 2u : 1u);
      EXPECT_EQ(exchange.from, exchange.to);
      if (tile + 1 == kTiles) continue;
      const auto& other = spans["compute " + next];
      if (other.begin_ns >= exchange.begin_ns && other.end_ns <= wait.begin_ns) {
        ++beside;
      } else {
        EXPECT_GE(other.begin_ns, exchange.end_ns) << "tile " << tile;
      }
    }
    overlapped[rank.group].push_back(beside);
    groups[rank.group].emplace_back(&rank, spans);
  }
  std::vector<std::vector<int>> counts;
  for (const auto& [group, tiles] : overlapped) counts.push_back(tiles);
  std::sort(counts.begin(), counts.end());
  EXPECT_EQ(counts, (std::vector<std::vector<int>>{{0, 0}, {kTiles - 1, kTiles - 1}}));
  for (const auto& [group, pair] : groups) {
    ASSERT_EQ(pair.size(), 2u);
    for (std::size_t to = 0; to < 2; ++to) {
      const auto& [receiver, got] = pair[to];
      const auto& [sender, sent] = pair[1 - to];
      for (int tile = 0; tile < kTiles; ++tile) {
        const std::string name = "exchange " + std::to_string(tile);
        EXPECT_GE(static_cast<std::int64_t>(got.at(name).end_ns) + receiver->offset_ns + receiver->error_ns,
                  static_cast<std::int64_t>(sent.at(name).begin_ns) + sender->offset_ns - sender->error_ns)
            << name;
      }
    }
  }
}

}  // namespace nearlight::test
