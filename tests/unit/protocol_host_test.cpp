// LL and simple one-shot AllReduce on CPU threads, against the reference.
#include <string>
#include <tuple>

#include <gtest/gtest.h>

#include "tests/unit/protocol_ranks.hpp"

namespace nearlight::test {
namespace {

// (ranks, lanes a rank)
class ProtocolOnHost : public ::testing::TestWithParam<std::tuple<int, int>> {
 protected:
  ProtocolShape shape() const {
    ProtocolShape shape;
    std::tie(shape.ranks, shape.lanes) = GetParam();
    return shape;
  }
  // Fewer where the threads outnumber the processors many times.
  std::size_t calls() const { return static_cast<std::size_t>(600 / (shape().ranks * shape().lanes)); }
};

TEST_P(ProtocolOnHost, RandomCallsAreRight) {
  ProtocolRanks ranks(shape());
  EXPECT_EQ(ranks.run_all(random_calls(calls(), 2048, 1)), "");
}

TEST_P(ProtocolOnHost, EveryTypeOperatorAndKindIsRight) {
  ProtocolRanks ranks(shape());
  std::vector<ProtocolCall> calls;
  for (const auto protocol : algorithm::kProtocols) {
    for (const DataType type : kDataTypes) {
      if (!algorithm::carries(protocol, type)) continue;
      for (const ReduceOp op : kReduceOps) {
        for (const int held : {0, 1, 2}) {
          ProtocolCall call;
          call.protocol = protocol;
          call.held = held;
          call.type = type;
          call.op = op;
          call.count = 61;  // ends inside a pack and a vector, takes several rounds
          call.seed = calls.size();
          calls.push_back(call);
        }
      }
    }
  }
  EXPECT_EQ(ranks.run_all(calls), "");
}

// The 32-bit epoch starts again after 0xffffffff; slots and flags are used by chance, so stale ones are met.
TEST_P(ProtocolOnHost, RandomCallsAcrossTheWrapAreRight) {
  ProtocolShape shape = this->shape();
  shape.initial_epoch = 0xfffffff0u;
  ProtocolRanks ranks(shape);
  EXPECT_EQ(ranks.run_all(random_calls(40, 512, 2)), "");
  EXPECT_LT(ranks.rank(0).state.epoch, 0x10000u) << "the epochs did not get across";
  for (int rank = 1; rank < shape.ranks; ++rank) {
    EXPECT_EQ(ranks.rank(rank).state.epoch, ranks.rank(0).state.epoch);
  }
}

INSTANTIATE_TEST_SUITE_P(Groups, ProtocolOnHost,
                         ::testing::Combine(::testing::Values(2, 3, 4, 5), ::testing::Values(1, 3)),
                         [](const auto& chosen) {
                           return std::to_string(std::get<0>(chosen.param)) + "RanksOf" +
                                  std::to_string(std::get<1>(chosen.param));
                         });

// One call of a rank whose peers never come.
class ProtocolAlone : public ::testing::TestWithParam<algorithm::Protocol> {
 protected:
  void call_alone(ProtocolRanks& ranks, int rank) {
    ProtocolCall call;
    call.protocol = GetParam();
    float send = 1, recv = 2;
    std::barrier<> barrier(1);
    ranks.run(call, rank, {0, 1, &barrier}, &send, &recv);
    EXPECT_EQ(recv, 2) << "a result was written without the peers' part";
  }
};

TEST_P(ProtocolAlone, TimesOutAndSaysWhatWasMissing) {
  ProtocolShape shape;
  shape.ranks = 3;
  shape.timeout_ns = 20'000'000;
  shape.initial_epoch = 40;
  ProtocolRanks ranks(shape);
  const std::uint64_t before = HostSpace::now_ns();
  call_alone(ranks, 1);
  EXPECT_GE(HostSpace::now_ns() - before, shape.timeout_ns);
  const ProtocolRank& own = ranks.rank(1);
  ASSERT_EQ(own.valid, 1u);
  EXPECT_EQ(own.record.kind, static_cast<std::uint32_t>(protocol::Wait::timeout));
  EXPECT_EQ(own.record.rank, 1);
  EXPECT_EQ(own.record.peer, 0);
  EXPECT_EQ(own.record.epoch, 41u);
  EXPECT_EQ(own.record.slot, 0u);
  EXPECT_EQ(own.record.expected, 41u);
  EXPECT_EQ(own.record.seen, 0u);
  EXPECT_GE(own.record.time_ns, before + shape.timeout_ns);
  EXPECT_EQ(own.state.failed, 1u);

  // The first failure stays; nothing waits any more, but the epochs go on.
  const protocol::FaultRecord first = own.record;
  for (int i = 0; i < 1000; ++i) call_alone(ranks, 1);
  EXPECT_EQ(own.record.time_ns, first.time_ns);
  EXPECT_EQ(own.record.epoch, 41u);
  EXPECT_EQ(own.state.epoch, 1041u);
}

// The host reads the record while the rank's thread is still at work: [F1] orders it.
TEST_P(ProtocolAlone, AbortEndsTheWaitAndTheRecordIsWholeOnceValid) {
  ProtocolShape shape;
  ProtocolRanks ranks(shape);
  ProtocolRank& own = ranks.rank(0);
  std::thread thread([&] { call_alone(ranks, 0); });
  HostSpace::store<exec::Order::relaxed, exec::Scope::system>(own.abort, 1);
  const std::uint64_t start = HostSpace::now_ns();
  while (HostSpace::load<exec::Order::acquire, exec::Scope::system>(own.valid) == 0 &&
         HostSpace::now_ns() - start < 30'000'000'000) {
    std::this_thread::yield();
  }
  const protocol::FaultRecord record = own.record;
  thread.join();
  EXPECT_EQ(record.kind, static_cast<std::uint32_t>(protocol::Wait::aborted));
  EXPECT_EQ(record.rank, 0);
  EXPECT_EQ(record.peer, 1);
  EXPECT_EQ(record.expected, 1u);
}

INSTANTIATE_TEST_SUITE_P(Kinds, ProtocolAlone, ::testing::ValuesIn(algorithm::kProtocols),
                         [](const auto& chosen) { return std::string(algorithm::name_of(chosen.param)); });

}  // namespace
}  // namespace nearlight::test
