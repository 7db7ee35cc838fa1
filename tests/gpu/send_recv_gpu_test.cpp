// Sends and receives of GPU ranks: rings, exchanges and orders that would wait for each other, to the byte;
// in graphs, across the wrap, with ranks that are late or missing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "tests/gpu/placed.hpp"
#include "tests/gpu/ranks.hpp"
#include "tests/gpu/setups.hpp"
#include "tests/support/gpu_support.hpp"

namespace nearlight::test {
namespace {

using route::Protocol;
using runtime::CallOptions;
using runtime::MessageCall;
using testing::HasSubstr;

constexpr std::size_t kBufferBytes = std::size_t{24} << 20;

struct Case {
  std::vector<Sent> pattern;
  CallOptions options = {};
};

void run_cases(Group& group, const std::vector<Case>& cases, int times = 1) {
  group.run([&](Rank& rank) {
    int complaints = 0;
    for (std::size_t i = 0; i < cases.size(); ++i) {
      const Placed placed(rank, cases[i].pattern, i + 1);
      ASSERT_CUDA(placed.fill());
      group.meet();
      for (int again = 0; again < times; ++again)
        ASSERT_OK(rank.comm->messages(placed.calls(), rank.stream, cases[i].options));
      ASSERT_CUDA(cudaStreamSynchronize(rank.stream));
      ASSERT_OK(rank.comm->status());
      group.meet();
      const std::string wrong = placed.wrong();
      EXPECT_EQ(wrong, "") << "case " << i;
      if (!wrong.empty() && ++complaints == 5) return;
    }
  });
}

CallOptions by(Protocol protocol, std::uint32_t grid = 0) {
  CallOptions options;
  options.protocol = protocol;
  options.grid = grid;
  return options;
}
std::vector<CallOptions> each_way() { return {CallOptions(), by(Protocol::ll), by(Protocol::simple)}; }

class SendRecvGpu : public testing::TestWithParam<Setup> {};

TEST_P(SendRecvGpu, Rings) {
  Group group(GetParam(), test_options(), kBufferBytes);
  ASSERT_TRUE(group.ok());
  std::vector<Case> cases;
  for (const CallOptions& options : each_way()) {
    for (const std::size_t count : {0u, 1u, 7u, 8u, 9u, 255u, 2048u, 2049u, 16384u, 40'001u, 1'000'003u})
      cases.push_back({ring(group.nranks(), count), options});
  }
  run_cases(group, cases);
}

TEST_P(SendRecvGpu, EveryTypeAtEveryAlignment) {
  Group group(GetParam(), test_options(), kBufferBytes);
  ASSERT_TRUE(group.ok());
  std::vector<Case> cases;
  for (const DataType type : kDataTypes) {
    for (const Protocol protocol : {Protocol::ll, Protocol::simple}) {
      std::vector<Sent> pattern;
      for (std::size_t offset = 0; offset < 16 / size_of(type); ++offset) {
        pattern.push_back({0, 1, 37 + offset * 9, type, offset});
        pattern.push_back({1, 0, 401 - offset, type, offset});
      }
      cases.push_back({pattern, by(protocol)});
    }
  }
  run_cases(group, cases);
}

TEST_P(SendRecvGpu, EveryRankToEveryOtherWithUnevenCounts) {
  Group group(GetParam(), test_options(), kBufferBytes);
  ASSERT_TRUE(group.ok());
  std::vector<Case> cases;
  for (std::size_t round = 1; round < 9; ++round) {
    std::vector<Sent> pattern;
    for (int from = 0; from < group.nranks(); ++from) {
      for (int to = 0; to < group.nranks(); ++to) {
        const std::size_t size = static_cast<std::size_t>(from * 17 + to * 5 + 1) * round * 977 % 60'000;
        pattern.push_back({from, to, size});
        if (to % 2 == 0) pattern.push_back({from, to, size / 7, DataType::f16, round % 8});
      }
    }
    cases.push_back({pattern, each_way()[round % 3]});
  }
  run_cases(group, cases);
}

// More than there is room for on both ways: one after the other each would wait for the other.
TEST_P(SendRecvGpu, LargeMessagesBothWays) {
  Group group(GetParam(), test_options(), kBufferBytes);
  ASSERT_TRUE(group.ok());
  std::vector<Case> cases;
  for (const CallOptions& options : {CallOptions(), by(Protocol::simple, 1), by(Protocol::ll, 3)}) {
    std::vector<Sent> pattern = ring(group.nranks(), std::size_t{2} << 20 | 5);
    for (const Sent& sent : ring(group.nranks(), 500'001))
      pattern.push_back({sent.to, sent.from, sent.count});
    cases.push_back({pattern, options});
  }
  run_cases(group, cases);
}

// A hundred messages of one side's group are the other one's single calls, with an answer behind them that
// the group waits for as well.
TEST_P(SendRecvGpu, AGroupMeetsSingles) {
  Group group(GetParam(), test_options(), kBufferBytes);
  ASSERT_TRUE(group.ok());
  std::vector<Sent> pattern;
  for (std::size_t i = 0; i < 100; ++i) pattern.push_back({0, 1, 300 + i * 40});
  std::vector<Sent> answer = pattern;
  answer.push_back({1, 0, 5000});
  group.run([&](Rank& rank) {
    if (rank.rank > 1) return;
    const Placed placed(rank, answer, 4);
    ASSERT_CUDA(placed.fill());
    group.meet();
    const auto calls = placed.calls();
    if (rank.rank == 0) {
      ASSERT_OK(rank.comm->messages(calls, rank.stream));
    } else {
      for (const bool sends : {false, true}) {
        for (const MessageCall& call : calls) {
          if (call.sends == sends) ASSERT_OK(rank.comm->messages({&call, 1}, rank.stream));
        }
      }
    }
    ASSERT_CUDA(cudaStreamSynchronize(rank.stream));
    ASSERT_OK(rank.comm->status());
    group.meet();
    EXPECT_EQ(placed.wrong(), "");
  });
}

// The kernel with the large parameter.
TEST_P(SendRecvGpu, HundredsOfMessages) {
  Group group(GetParam(), test_options(), kBufferBytes);
  ASSERT_TRUE(group.ok());
  std::mt19937 random(3);
  std::vector<Sent> pattern(static_cast<std::size_t>(200 * group.nranks()));
  for (Sent& sent : pattern) {
    sent.from = static_cast<int>(random() % static_cast<unsigned>(group.nranks()));
    sent.to = static_cast<int>(random() % static_cast<unsigned>(group.nranks()));
    sent.count = random() % 3000;
  }
  run_cases(group, {{pattern, {}}});
  group.run([&](Rank& rank) {
    const std::vector<MessageCall> many(1001,
                                        {true, rank.send, 1, DataType::u8, (rank.rank + 1) % rank.nranks});
    EXPECT_EQ(rank.comm->messages(many, rank.stream).code(), Code::unsupported);
    ASSERT_OK(rank.comm->status());
  });
}

// Two ranks of more; the others have nothing to do with it, and collectives go on beside it.
TEST_P(SendRecvGpu, PairsBesideCollectives) {
  Group group(GetParam(), test_options(), kBufferBytes);
  ASSERT_TRUE(group.ok());
  const int rounds = scaled(40, 8);
  group.run([&](Rank& rank) {
    for (int round = 1; round <= rounds; ++round) {
      const int other = 1 + round % (rank.nranks - 1);
      const std::vector<Sent> pattern{{0, other, static_cast<std::size_t>(round) * 400}, {other, 0, 77}};
      const Placed placed(rank, pattern, static_cast<std::uint64_t>(round));
      ASSERT_CUDA(placed.fill());
      group.meet();
      if (rank.rank == 0 || rank.rank == other) ASSERT_OK(rank.comm->messages(placed.calls(), rank.stream));
      ASSERT_OK(rank.comm->barrier(rank.stream));
      ASSERT_CUDA(cudaStreamSynchronize(rank.stream));
      ASSERT_OK(rank.comm->status());
      group.meet();
      EXPECT_EQ(placed.wrong(), "");
    }
  });
}

// Hundreds of single messages without a wait, now one end late, now the other: a sender cannot run ahead of
// what has been read.
TEST_P(SendRecvGpu, ManyInARow) {
  Group group(GetParam(), test_options(), kBufferBytes);
  ASSERT_TRUE(group.ok());
  const int calls = scaled(400, 20);
  for (const Protocol protocol : {Protocol::ll, Protocol::simple}) {
    const std::vector<Sent> pattern = ring(group.nranks(), 700, DataType::i32);
    group.run([&](Rank& rank) {
      const Placed placed(rank, pattern, 2);
      ASSERT_CUDA(placed.fill());
      group.meet();
      for (int i = 0; i < calls; ++i) {
        if (i % 50 == 7 && rank.rank == i / 50 % rank.nranks) {
          ASSERT_CUDA(hold(200'000, rank.stream));
        }
        ASSERT_OK(rank.comm->messages(placed.calls(), rank.stream, by(protocol)));
        group.keep_pace(static_cast<std::uint64_t>(i));
      }
      ASSERT_CUDA(cudaStreamSynchronize(rank.stream));
      ASSERT_OK(rank.comm->status());
      group.meet();
      EXPECT_EQ(placed.wrong(), "");
    });
  }
}

TEST_P(SendRecvGpu, GraphsGoOnCounting) {
  Group group(GetParam(), test_options(), kBufferBytes);
  ASSERT_TRUE(group.ok());
  const int replays = scaled(100, 5);
  std::uint64_t captured = 0;
  for (const CallOptions& options : each_way()) {
    captured += 3;
    const std::vector<Sent> pattern = ring(group.nranks(), 9001);
    group.run([&](Rank& rank) {
      const Placed placed(rank, pattern, 3);
      ASSERT_CUDA(placed.fill());
      group.meet();
      const Graph graph(rank, [&]() -> Status {
        for (int i = 0; i < 3; ++i) NL_TRY(rank.comm->messages(placed.calls(), rank.stream, options));
        return {};
      });
      ASSERT_TRUE(graph.ok());
      group.meet();
      for (int i = 0; i < replays; ++i) {
        ASSERT_CUDA(graph.launch());
        // Eager ones in between.
        if (i % 10 == 3) ASSERT_OK(rank.comm->messages(placed.calls(), rank.stream));
        group.keep_pace(static_cast<std::uint64_t>(i));
      }
      ASSERT_CUDA(cudaStreamSynchronize(rank.stream));
      ASSERT_OK(rank.comm->status());
      group.meet();
      EXPECT_EQ(placed.wrong(), "");
      EXPECT_EQ(rank.comm->counters().captured, captured);
    });
  }
}

TEST_P(SendRecvGpu, AcrossTheWrapOfTheTurn) {
  runtime::Options options = test_options();
  options.initial_epoch = 0xffffffffu - 20;
  Group group(GetParam(), options, kBufferBytes);
  ASSERT_TRUE(group.ok());
  std::vector<Case> cases;
  for (std::size_t i = 0; i < 60; ++i)
    cases.push_back(
        {ring(group.nranks(), i % 5 == 0 ? 4000 : 20), by(i % 2 == 0 ? Protocol::ll : Protocol::simple, 1)});
  run_cases(group, cases);
}

TEST_P(SendRecvGpu, ToItself) {
  Group group(GetParam(), test_options(), kBufferBytes);
  ASSERT_TRUE(group.ok());
  std::vector<Sent> pattern;
  for (int rank = 0; rank < group.nranks(); ++rank) pattern.push_back({rank, rank, 4001, DataType::f32});
  run_cases(group, {{pattern, {}}});
  group.run([&](Rank& rank) {
    const MessageCall alone{true, rank.send, 4, DataType::f32, rank.rank};
    EXPECT_EQ(rank.comm->messages({&alone, 1}, rank.stream).code(), Code::invalid_usage);
  });
}

// A peer that does not come is named, by who receives and by who sends more than there is room for; a reset
// brings all of it back.
TEST_P(SendRecvGpu, AMissingRankIsNamedAndAResetHelps) {
  runtime::Options options = test_options();
  options.timeout = patient(std::chrono::milliseconds(500));
  Group group(GetParam(), options, kBufferBytes);
  ASSERT_TRUE(group.ok());
  for (const bool sends : {false, true}) {
    for (const Protocol protocol : {Protocol::ll, Protocol::simple}) {
      group.run([&](Rank& rank) {
        group.meet();
        if (rank.rank != 1) {
          const MessageCall call{sends, rank.send, sends ? std::size_t{4} << 20 : 40, DataType::u8, 1};
          ASSERT_OK(rank.comm->messages({&call, 1}, rank.stream, by(protocol, 1)));
          ASSERT_CUDA(cudaStreamSynchronize(rank.stream));
          const Status status = rank.comm->status();
          EXPECT_EQ(status.code(), Code::timeout) << status.to_string();
          EXPECT_THAT(status.to_string(),
                      HasSubstr(sends ? "rank 1 has not received" : "nothing from rank 1"));
          const auto fault = rank.comm->fault();
          ASSERT_TRUE(fault.has_value());
          EXPECT_EQ(fault->peer, 1);
        }
        group.meet();
        ASSERT_OK(rank.comm->reset(patient(std::chrono::milliseconds(20'000))));
      });
      run_cases(group, {{ring(group.nranks(), 9001), {}}, {ring(group.nranks(), 50), by(protocol)}});
    }
  }
}

// In check mode the receiver is told what comes.
TEST_P(SendRecvGpu, CheckModeComparesThePair) {
  runtime::Options options = test_options();
  options.check = true;
  options.timeout = patient(std::chrono::milliseconds(2'000));
  Group group(GetParam(), options, kBufferBytes);
  ASSERT_TRUE(group.ok());
  run_cases(group, {{ring(group.nranks(), 9001), {}}, {ring(group.nranks(), 50), {}}});
  group.run([&](Rank& rank) {
    group.meet();
    if (rank.rank > 1) return;
    const MessageCall call{rank.rank == 0, rank.send, rank.rank == 0 ? std::size_t{6} : 8, DataType::f32,
                           1 - rank.rank};
    ASSERT_OK(rank.comm->messages({&call, 1}, rank.stream));
    ASSERT_CUDA(cudaStreamSynchronize(rank.stream));
    if (rank.rank == 0) return;
    const Status status = rank.comm->status();
    EXPECT_EQ(status.code(), Code::invalid_usage) << status.to_string();
    EXPECT_THAT(status.to_string(), HasSubstr("rank 0 sends 24 bytes of float"));
  });
}

INSTANTIATE_TEST_SUITE_P(OneGpu, SendRecvGpu, testing::ValuesIn(all_on_one_gpu()), setup_name);
INSTANTIATE_TEST_SUITE_P(TwoGpus, SendRecvGpu, testing::ValuesIn(all_on_two_gpus()), setup_name);

}  // namespace
}  // namespace nearlight::test
