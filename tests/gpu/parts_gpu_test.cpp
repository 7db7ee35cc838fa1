// The collectives by parts on GPUs: every type, operator, count, protocol, root, place and alignment, to the
// bit, with guards around everything; in graphs; late and missing ranks.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tests/gpu/placed_parts.hpp"
#include "tests/gpu/ranks.hpp"
#include "tests/gpu/setups.hpp"
#include "tests/support/gpu_support.hpp"

namespace nearlight::test {
namespace {

using route::Protocol;
using runtime::CallOptions;
using runtime::CollectiveCall;

constexpr Collective kByParts[] = {Collective::all_gather, Collective::reduce_scatter, Collective::broadcast,
                                   Collective::reduce, Collective::all_to_all};
constexpr std::size_t kBufferBytes = std::size_t{24} << 20;

// `prepare` and `check` in phases: nothing is copied while a kernel waits for a rank that would copy first.
void run_cases(Group& group, const std::vector<PartsCase>& cases, int times = 1) {
  group.run([&](Rank& rank) {
    int complaints = 0;
    for (std::size_t i = 0; i < cases.size(); ++i) {
      PlacedParts placed(rank, cases[i], i);
      ASSERT_CUDA(placed.fill());
      group.meet();
      // In place, a second time would have another input.
      for (int again = 0; again < times; ++again) ASSERT_OK(placed.call());
      ASSERT_CUDA(cudaStreamSynchronize(rank.stream));
      ASSERT_OK(rank.comm->status());
      group.meet();
      const std::string wrong = placed.wrong();
      EXPECT_EQ(wrong, "");
      if (!wrong.empty() && ++complaints == 5) return;
    }
  });
}

std::vector<std::optional<Protocol>> protocols_of(Collective collective, DataType type) {
  std::vector<std::optional<Protocol>> all{std::nullopt, Protocol::ll, Protocol::simple};
  if (is_reduction(collective) && algorithm::has_sentinel(type)) all.emplace_back(Protocol::sentinel);
  return all;
}

std::vector<PartsCase> thinned(std::vector<PartsCase> all) {
  std::vector<PartsCase> some;
  const auto wanted = static_cast<std::size_t>(std::max(1, scaled(static_cast<int>(all.size()))));
  for (std::size_t i = 0; i < wanted; ++i) some.push_back(all[i * all.size() / wanted]);
  return some;
}

class PartsGpu : public testing::TestWithParam<Setup> {};

TEST_P(PartsGpu, EveryCollectiveTypeProtocolCountAndPlace) {
  Group group(GetParam(), test_options(), kBufferBytes);
  ASSERT_TRUE(group.ok());
  std::vector<PartsCase> cases;
  for (const Collective collective : kByParts) {
    for (const DataType type : kDataTypes) {
      for (const std::uint64_t count : {0u, 1u, 2u, 3u, 7u, 17u, 33u, 127u, 1021u, 4099u, 40000u}) {
        for (const auto& protocol : protocols_of(collective, type)) {
          PartsCase one{collective, {type, ReduceOp::sum, Values::general, cases.size()}, count};
          one.root = static_cast<int>(cases.size()) % group.nranks();
          one.options.protocol = protocol;
          if (!is_reduction(collective)) one.pattern.values = Values::special;
          cases.push_back(one);
        }
      }
    }
  }
  run_cases(group, thinned(cases));
}

TEST_P(PartsGpu, EveryOperator) {
  Group group(GetParam(), test_options(), kBufferBytes);
  ASSERT_TRUE(group.ok());
  std::vector<PartsCase> cases;
  for (const Collective collective : {Collective::reduce_scatter, Collective::reduce}) {
    for (const DataType type : kDataTypes) {
      for (const ReduceOp op : kReduceOps) {
        for (const auto& protocol : protocols_of(collective, type)) {
          PartsCase one{collective, {type, op, Values::special, cases.size()}, 1021};
          one.root = static_cast<int>(cases.size()) % group.nranks();
          one.options.protocol = protocol;
          cases.push_back(one);
        }
      }
    }
  }
  run_cases(group, thinned(cases));
}

// One CTA and some, one warp and many: the grid is the caller's, and rounds follow from it.
TEST_P(PartsGpu, EveryGridAndBlockSize) {
  Group group(GetParam(), test_options(), kBufferBytes);
  ASSERT_TRUE(group.ok());
  std::vector<PartsCase> cases;
  for (const Collective collective : kByParts) {
    for (const Protocol protocol : {Protocol::ll, Protocol::simple}) {
      for (const std::uint32_t grid : {1u, 3u, 8u}) {
        for (const std::uint32_t threads : {32u, 96u, 512u}) {
          PartsCase one{collective, {DataType::bf16, ReduceOp::sum, Values::general, cases.size()}, 30011};
          one.root = static_cast<int>(cases.size()) % group.nranks();
          one.options.protocol = protocol;
          one.options.grid = grid;
          one.options.threads = threads;
          cases.push_back(one);
        }
      }
    }
  }
  run_cases(group, thinned(cases));
}

TEST_P(PartsGpu, LargeMessages) {
  Group group(GetParam(), test_options(), kBufferBytes);
  ASSERT_TRUE(group.ok());
  std::vector<PartsCase> cases;
  for (const Collective collective : kByParts) {
    for (const std::uint64_t bytes : {std::size_t{256} << 10, std::size_t{2} << 20}) {
      cases.push_back(
          {collective, {DataType::f32, ReduceOp::sum, Values::general, cases.size()}, bytes / 4 - 3});
    }
  }
  run_cases(group, thinned(cases));
}

// A graph of each with barriers in between, replayed without a wait.
TEST_P(PartsGpu, GraphsGoOnCounting) {
  Group group(GetParam(), test_options(), kBufferBytes);
  ASSERT_TRUE(group.ok());
  constexpr std::uint64_t kCount = 999;
  const int replays = scaled(30, 3);
  std::vector<PartsCase> cases;
  for (const Protocol protocol : {Protocol::ll, Protocol::simple}) {
    for (const Collective collective : kByParts) {
      PartsCase one{collective, {DataType::bf16, ReduceOp::sum, Values::general, cases.size()}, kCount};
      one.root = static_cast<int>(cases.size()) % group.nranks();
      one.options.protocol = protocol;
      cases.push_back(one);
    }
  }
  for (const PartsCase& one : cases) {
    group.run([&](Rank& rank) {
      // Not in place, so that it can be done again: a number that says so is looked for.
      std::uint64_t number = 0;
      while (mixed(3, static_cast<std::uint32_t>(rank.rank), number) % 2 == 0) ++number;
      PlacedParts placed(rank, one, number);
      ASSERT_CUDA(placed.fill());
      group.meet();
      Graph graph(rank, [&]() -> Status {
        for (int i = 0; i < 3; ++i) {
          NL_TRY(placed.call());
          NL_TRY(rank.comm->barrier(rank.stream));
        }
        return placed.call();
      });
      ASSERT_TRUE(graph.ok());
      group.meet();
      for (int i = 0; i < replays; ++i) ASSERT_CUDA(graph.launch());
      ASSERT_CUDA(cudaStreamSynchronize(rank.stream));
      ASSERT_OK(rank.comm->status());
      group.meet();
      EXPECT_EQ(placed.wrong(), "");
    });
  }
}

// Hundreds of calls without a wait: a root that is quick cannot run ahead of what the others have read.
TEST_P(PartsGpu, ManyCallsInARow) {
  Group group(GetParam(), test_options(), kBufferBytes);
  ASSERT_TRUE(group.ok());
  const int calls = scaled(400, 20);
  for (const Protocol protocol : {Protocol::ll, Protocol::simple}) {
    PartsCase one{Collective::broadcast, {DataType::i32, ReduceOp::sum, Values::general, 1}, 700};
    one.options.protocol = protocol;
    group.run([&](Rank& rank) {
      std::uint64_t number = 0;
      while (mixed(3, static_cast<std::uint32_t>(rank.rank), number) % 2 == 0) ++number;
      PlacedParts placed(rank, one, number);
      ASSERT_CUDA(placed.fill());
      group.meet();
      for (int i = 0; i < calls; ++i) {
        // Now the last rank is late, now the first.
        if (i % 50 == 7 && rank.rank == i / 50 % rank.nranks) {
          ASSERT_CUDA(hold(200'000, rank.stream));
        }
        ASSERT_OK(placed.call());
        group.keep_pace(static_cast<std::uint64_t>(i));
      }
      ASSERT_CUDA(cudaStreamSynchronize(rank.stream));
      ASSERT_OK(rank.comm->status());
      group.meet();
      EXPECT_EQ(placed.wrong(), "");
    });
  }
}

TEST_P(PartsGpu, AcrossTheWrapOfTheEpoch) {
  runtime::Options options = test_options();
  options.initial_epoch = 0xffffffffu - 8;
  Group group(GetParam(), options, kBufferBytes);
  ASSERT_TRUE(group.ok());
  std::vector<PartsCase> cases;
  for (int i = 0; i < 20; ++i) {
    PartsCase one{kByParts[i % 5], {DataType::f32, ReduceOp::sum, Values::general, cases.size()}, 200};
    one.root = i % group.nranks();
    one.options.protocol = i % 2 == 0 ? Protocol::ll : Protocol::simple;
    one.options.grid = 1;
    cases.push_back(one);
  }
  run_cases(group, cases);
}

// Threads held up at each point, in one rank after the other.
TEST_P(PartsGpu, HeldUpThreads) {
  Group group(GetParam(), test_options(), kBufferBytes);
  ASSERT_TRUE(group.ok());
  for (const Collective collective :
       {Collective::all_gather, Collective::broadcast, Collective::all_to_all}) {
    for (std::uint32_t point = 1; point <= 4; ++point) {
      group.run([&](Rank& rank) {
        for (int late = 0; late < rank.nranks; ++late) {
          PartsCase one{collective, {DataType::f32, ReduceOp::sum, Values::general, point}, 1200, late};
          one.options.protocol = point % 2 == 0 ? Protocol::ll : Protocol::simple;
          one.options.delay_point = point;
          one.options.delay_ns = rank.rank == late ? 100'000 : 0;
          PlacedParts placed(rank, one, 4 * point);
          ASSERT_CUDA(placed.fill());
          group.meet();
          ASSERT_OK(placed.call());
          ASSERT_CUDA(cudaStreamSynchronize(rank.stream));
          group.meet();
          EXPECT_EQ(placed.wrong(), "");
        }
      });
    }
  }
}

// Parts of different sizes, some of nothing: AllToAllV, whose rounds the ranks agree on as they go, and
// AllGatherV. A hole lies between two parts, which nobody may write to.
TEST_P(PartsGpu, UnevenParts) {
  Group group(GetParam(), test_options(), kBufferBytes);
  ASSERT_TRUE(group.ok());
  const int rounds = scaled(25, 4);
  const auto count_of = [](int round, int from, int to) -> std::size_t {
    const int mixed = (round * 31 + from * 17 + to * 7) % 23;
    if (round % 6 == 5 || mixed < 5 || (round % 5 == 3 && from == 0)) return 0;
    return static_cast<std::size_t>(round % 4 == 0 ? mixed * 5003 : mixed * 11);
  };
  const auto value_of = [](int round, int from, int to, std::size_t i) {
    return static_cast<std::uint16_t>(round * 257 + from * 4099 + to * 31 + static_cast<int>(i % 1009));
  };
  constexpr std::uint16_t kHole = 0xabcd;
  group.run([&](Rank& rank) {
    const auto ranks = static_cast<std::size_t>(rank.nranks);
    for (int round = 0; round < rounds; ++round) {
      std::vector<std::size_t> gives(ranks), gets(ranks), from(ranks), to(ranks);
      std::size_t sent = 0, received = 0;
      for (std::size_t peer = 0; peer < ranks; ++peer) {
        gives[peer] = count_of(round, rank.rank, static_cast<int>(peer));
        gets[peer] = count_of(round, static_cast<int>(peer), rank.rank);
        from[peer] = sent;
        to[peer] = received;
        sent += gives[peer] + 1;
        received += gets[peer] + 1;
      }
      std::vector<std::uint16_t> send(sent, kHole), recv(received, kHole);
      for (std::size_t peer = 0; peer < ranks; ++peer) {
        for (std::size_t i = 0; i < gives[peer]; ++i)
          send[from[peer] + i] = value_of(round, rank.rank, static_cast<int>(peer), i);
      }
      // Halves at odd places.
      char* const input = rank.send + 256 + 2 * (round % 3);
      char* const output = rank.recv + 256 + 2 * (round % 5);
      ASSERT_CUDA(cudaMemcpyAsync(input, send.data(), 2 * sent, cudaMemcpyHostToDevice, rank.stream));
      ASSERT_CUDA(cudaMemcpyAsync(output, recv.data(), 2 * received, cudaMemcpyHostToDevice, rank.stream));
      ASSERT_CUDA(cudaStreamSynchronize(rank.stream));
      group.meet();
      const CollectiveCall call{.collective = Collective::all_to_all_v,
                                .send = input,
                                .recv = output,
                                .count = 0,
                                .type = DataType::bf16,
                                .counts = gets.data(),
                                .places = to.data(),
                                .send_counts = gives.data(),
                                .send_places = from.data()};
      for (int again = 0; again < 3; ++again) ASSERT_OK(rank.comm->collective(call, rank.stream));
      // What each rank gives to rank 0, to everybody.
      std::vector<std::size_t> all(ranks);
      std::size_t whole = 0;
      for (std::size_t peer = 0; peer < ranks; ++peer)
        whole += all[peer] = count_of(round, static_cast<int>(peer), 0);
      char* const gathered = rank.recv + (kBufferBytes / 4 * 3);
      const CollectiveCall gather{.collective = Collective::all_gather_v,
                                  .send = input + 2 * from[0],
                                  .recv = gathered,
                                  .count = 0,
                                  .type = DataType::bf16,
                                  .counts = all.data()};
      ASSERT_OK(rank.comm->collective(gather, rank.stream));
      ASSERT_CUDA(cudaStreamSynchronize(rank.stream));
      ASSERT_OK(rank.comm->status());
      group.meet();
      std::vector<std::uint16_t> of_all(whole);
      ASSERT_CUDA(cudaMemcpyAsync(recv.data(), output, 2 * received, cudaMemcpyDeviceToHost, rank.stream));
      ASSERT_CUDA(cudaMemcpyAsync(of_all.data(), gathered, 2 * whole, cudaMemcpyDeviceToHost, rank.stream));
      ASSERT_CUDA(cudaStreamSynchronize(rank.stream));
      std::size_t at = 0;
      for (std::size_t peer = 0; peer < ranks; ++peer) {
        const int source = static_cast<int>(peer);
        for (std::size_t i = 0; i < gets[peer]; ++i) {
          ASSERT_EQ(recv[to[peer] + i], value_of(round, source, rank.rank, i))
              << "round " << round << ", rank " << rank.rank << ", from " << peer << ", element " << i;
        }
        ASSERT_EQ(recv[to[peer] + gets[peer]], kHole) << "round " << round;
        for (std::size_t i = 0; i < all[peer]; ++i)
          ASSERT_EQ(of_all[at++], value_of(round, source, 0, i)) << "round " << round;
      }
    }
  });
}

// Rank 1 never calls: everybody else says so, the root of a broadcast as well.
TEST_P(PartsGpu, AMissingRankIsNamed) {
  for (const Collective collective : kByParts) {
    for (const Protocol protocol : {Protocol::ll, Protocol::simple}) {
      runtime::Options options = test_options();
      options.timeout = patient(std::chrono::milliseconds(200));
      Group group(GetParam(), options, std::size_t{1} << 20);
      ASSERT_TRUE(group.ok());
      group.run([&](Rank& rank) {
        PartsCase one{collective, {DataType::f32, ReduceOp::sum, Values::general, 1}, 100};
        one.options.protocol = protocol;
        PlacedParts placed(rank, one, 0);
        ASSERT_CUDA(placed.fill());
        group.meet();
        if (rank.rank != 1) {
          ASSERT_OK(placed.call());
          ASSERT_CUDA(cudaStreamSynchronize(rank.stream));
          EXPECT_EQ(rank.comm->status().code(), Code::timeout);
          const auto fault = rank.comm->fault();
          ASSERT_TRUE(fault.has_value());
          EXPECT_EQ(fault->peer, 1) << one.to_string() << ": " << fault->status.to_string();
          EXPECT_NE(fault->status.text().find(name_of(collective)), std::string::npos);
        }
        group.meet();
      });
    }
  }
}

INSTANTIATE_TEST_SUITE_P(OneGpu, PartsGpu, testing::ValuesIn(some_on_one_gpu()), setup_name);
INSTANTIATE_TEST_SUITE_P(TwoGpus, PartsGpu, testing::ValuesIn(some_on_two_gpus()), setup_name);

}  // namespace
}  // namespace nearlight::test
