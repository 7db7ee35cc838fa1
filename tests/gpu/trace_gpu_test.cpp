// What traced kernels write down, and that they reduce as the others do.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <iterator>
#include <map>
#include <memory>

#include "tests/cli/overlap_timeline.hpp"
#include "tests/cli/trace_folder.hpp"
#include "tests/gpu/one_way.hpp"
#include "tests/gpu/placed.hpp"
#include "tests/gpu/ranks.hpp"
#include "tests/gpu/setups.hpp"
#include "tests/support/fused.hpp"
#include "tests/support/gemv.hpp"
#include "tests/support/gpu_support.hpp"

int rung_overlap();  // examples/ladder/8_overlap.cpp

namespace nearlight::test {
namespace {

using trace::Event;

constexpr std::size_t kBufferBytes = std::size_t{1} << 20;

void expect_in_order(const trace::RankTrace::Epoch& epoch) {
  const std::uint64_t steps[] = {epoch.at(Event::start), epoch.at(Event::publish), epoch.at(Event::published),
                                 epoch.at(Event::arrived), epoch.at(Event::done)};
  for (int i = 0; i < trace::kEvents; ++i) {
    if (i == static_cast<int>(Event::published) && steps[i] == 0) continue;  // a round of several parts
    ASSERT_NE(steps[i], 0u) << "step " << i << " of epoch " << epoch.epoch;
    if (i > 0) {
      ASSERT_GE(steps[i], steps[i - 1]) << "step " << i << " of epoch " << epoch.epoch;
    }
  }
}

// Nobody has what another one sends before it is sent, as far as the clocks agree.
void expect_causal(const std::vector<trace::RankTrace>& ranks) {
  for (const auto& from : ranks) {
    std::map<std::pair<std::uint32_t, std::uint32_t>, std::int64_t> sent;
    for (const auto& epoch : from.epochs) {
      sent[{epoch.region, epoch.epoch}] =
          static_cast<std::int64_t>(epoch.at(Event::publish)) + from.offset_ns - from.error_ns;
    }
    for (const auto& to : ranks) {
      if (to.rank == from.rank) continue;
      for (const auto& epoch : to.epochs) {
        const auto found = sent.find({epoch.region, epoch.epoch});
        ASSERT_NE(found, sent.end());
        ASSERT_GE(static_cast<std::int64_t>(epoch.at(Event::arrived)) + to.offset_ns + to.error_ns,
                  found->second)
            << "epoch " << epoch.epoch << " of region " << epoch.region;
      }
    }
  }
}

class TraceGpu : public testing::TestWithParam<Setup> {};
INSTANTIATE_TEST_SUITE_P(OneGpu, TraceGpu, testing::ValuesIn(some_on_one_gpu()), setup_name);
INSTANTIATE_TEST_SUITE_P(TwoGpus, TraceGpu, testing::ValuesIn(some_on_two_gpus()), setup_name);

// Every protocol and shape: right results, and each call's steps in order.
TEST_P(TraceGpu, EveryCallsStepsInOrder) {
  const TraceFolder folder;
  constexpr int kCalls = 20;
  std::uint64_t checks = 0;
  {
    Group group(GetParam(), test_options(), kBufferBytes);
    ASSERT_TRUE(group.ok());
    for (const auto protocol : group.protocols()) {
      for (const std::uint64_t count : {1u, 64u, 3000u, 8192u, 40'000u}) {
        runtime::CallOptions options;
        options.protocol = protocol;
        const Pattern pattern{DataType::bf16, ReduceOp::sum, Values::general, count};
        group.run([&](Rank& rank) {
          for (int i = 0; i < kCalls; ++i)
            ASSERT_OK(rank.prepare_reduce_check(rank.work(pattern, count, false), options));
        });
        checks += kCalls;
      }
    }
    group.expect_clean(checks);
  }
  auto traces = folder.traces();
  ASSERT_EQ(traces.size(), static_cast<std::size_t>(GetParam().ranks));
  trace::align(traces);
  for (const auto& rank : traces) {
    EXPECT_EQ(rank.backend, "cuda");
    EXPECT_GE(rank.epochs.size(), checks);
    for (const auto& epoch : rank.epochs) expect_in_order(epoch);
  }
  expect_causal(traces);
}

// Both ends of every turn of messages, by lines and by cells, whatever number of lanes; not of groups of more
// than a launch with the small parameter takes, nor where nobody asked.
TEST_P(TraceGpu, MessagesAtBothEnds) {
  const TraceFolder folder;
  {
    Group group(GetParam(), test_options(), kBufferBytes);
    ASSERT_TRUE(group.ok());
    std::vector<Sent> many;
    for (int i = 0; i < 66; ++i) many.push_back({i % 2, 1 - i % 2, 9});
    group.run([&](Rank& rank) {
      std::uint64_t round = 0;
      for (const auto protocol : {route::Protocol::ll, route::Protocol::simple}) {
        for (const std::size_t count : {1u, 700u, 40'000u}) {
          runtime::CallOptions options;
          options.protocol = protocol;
          for (const auto& pattern : {ring(group.nranks(), count), many}) {
            for (const bool untraced : {false, true}) {
              options.untraced = untraced;
              const Placed placed(rank, pattern, ++round);
              ASSERT_CUDA(placed.fill());
              group.meet();
              ASSERT_OK(rank.comm->messages(placed.calls(), rank.stream, options));
              ASSERT_CUDA(cudaStreamSynchronize(rank.stream));
              ASSERT_OK(rank.comm->status());
              group.meet();
              EXPECT_EQ(placed.wrong(), "") << round;
            }
          }
        }
      }
    });
  }
  auto traces = folder.traces();
  ASSERT_EQ(traces.size(), static_cast<std::size_t>(GetParam().ranks));
  trace::align(traces);
  const auto ranks = static_cast<std::size_t>(GetParam().ranks);
  EXPECT_GE(expect_whole_turns(traces), 6 * ranks);
  for (const auto& rank : traces) {
    std::size_t bytes = 0;
    for (const auto& turn : rank.turns) bytes += turn.sends ? 0 : turn.bytes;
    EXPECT_EQ(bytes, 2 * (1 + 700 + 40'000u));
  }
}

// Every round of fused rows and of both products, of bf16; the numbers are as right as without a trace.
TEST_P(TraceGpu, CallsThatHaveOneWay) {
  const TraceFolder folder;
  constexpr Collective kTraced[] = {Collective::all_reduce_rms_norm, Collective::gemv_all_reduce,
                                    Collective::all_gather_gemv};
  {
    runtime::Options options = test_options();
    options.packets = 96;  // in several rounds
    Group group(GetParam(), options, kBufferBytes);
    ASSERT_TRUE(group.ok());
    FusedProblem rows;
    rows.tokens = 3;
    GemvProblem product;
    product.tokens = 5;
    product.in = 512;
    product.out = 4096;
    GemvProblem gathering = product;
    gathering.gathers = true;
    run_all<FusedProblem>(group, {rows});
    run_all<GemvProblem>(group, {product, gathering, product});
    rows.type = rows.output_type = product.type = gathering.type = DataType::f16;  // leave no trace
    run_all<FusedProblem>(group, {rows});
    run_all<GemvProblem>(group, {product, gathering});
  }
  auto traces = folder.traces();
  ASSERT_EQ(traces.size(), static_cast<std::size_t>(GetParam().ranks));
  trace::align(traces);
  for (const auto& rank : traces) {
    std::map<std::uint32_t, std::size_t> rounds;
    for (const auto& epoch : rank.epochs) {
      expect_in_order(epoch);
      ++rounds[epoch.collective];
    }
    EXPECT_EQ(rounds.size(), std::size(kTraced));
    for (const Collective collective : kTraced)
      EXPECT_GT(rounds[static_cast<std::uint32_t>(collective)], 0u) << name_of(collective);
  }
  expect_causal(traces);
}

// Graphs write as calls do; the ring lives as long as they, and keeps the newest.
TEST_P(TraceGpu, GraphsOutliveTheCommunicator) {
  const TraceFolder folder;
  constexpr int kChain = 50, kReplays = 40;  // more than the ring has lines
  static_assert(kChain * kReplays > trace::kLinesOnGpu);
  Group group(GetParam(), test_options(), kBufferBytes);
  ASSERT_TRUE(group.ok());
  std::vector<std::unique_ptr<Graph>> graphs(group.ranks().size());
  group.run([&](Rank& rank) {
    const Work work = rank.work({DataType::bf16, ReduceOp::sum, Values::general, 3}, 64, false);
    ASSERT_CUDA(prepare(work, rank.stream));
    auto& graph = graphs[static_cast<std::size_t>(rank.rank)];
    graph = std::make_unique<Graph>(rank, [&]() -> Status {
      for (int i = 0; i < kChain; ++i) NL_TRY(rank.all_reduce(work));
      return {};
    });
    ASSERT_TRUE(graph->ok());
    group.meet();
    for (int i = 0; i < kReplays; ++i) {
      ASSERT_CUDA(graph->launch());
      group.keep_pace(static_cast<std::uint64_t>(i));
    }
    ASSERT_CUDA(cudaStreamSynchronize(rank.stream));
    group.meet();
    rank.comm.reset();
    group.meet();
    ASSERT_CUDA(graph->launch());
    ASSERT_CUDA(cudaStreamSynchronize(rank.stream));
  });
  graphs.clear();
  for (const auto& rank : folder.traces()) {
    std::map<std::uint32_t, std::size_t> lines;
    std::uint32_t newest = 0;
    for (const auto& epoch : rank.epochs) {
      expect_in_order(epoch);
      ++lines[epoch.region];
      newest = std::max(newest, epoch.epoch);
    }
    EXPECT_EQ(newest, static_cast<std::uint32_t>(kChain * kReplays));
    for (const auto& [region, count] : lines) EXPECT_EQ(count, trace::kLinesOnGpu) << region;
  }
}

// What a kernel of the program's own computes while its messages fly.
TEST(LadderGpuTrace, TheOverlapIsInTheTimeline) {
  const TraceFolder folder;
  ASSERT_EQ(rung_overlap(), 0);
  expect_overlap_timeline(folder.traces());
}

}  // namespace
}  // namespace nearlight::test
