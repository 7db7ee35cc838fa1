// The epoch comes round after 2^32 calls: all protocols across the wrap, and across what a signed or shorter
// counter would trip over.
#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "algorithm/host/all_reduce.hpp"
#include "base/collective.hpp"
#include "tests/support/checked_call.hpp"
#include "tests/support/kinds.hpp"

namespace nearlight::test {
namespace {

using Epoch = ByKind;
INSTANTIATE_TEST_SUITE_P(Kinds, Epoch, testing::ValuesIn(kinds()), kind_name);

constexpr auto& kProtocols = algorithm::kProtocols;

// 16 calls of all protocols, of one to five rounds each.
void mixed_calls(runtime::Communicator& comm, std::uint32_t start, Problems& trouble) {
  Caller caller(comm, 2048);
  for (std::uint32_t i = 0; i < 16; ++i) {
    const std::uint32_t number = start + i;
    Call call{kDataTypes[number % std::size(kDataTypes)],
              kReduceOps[number / 3 % std::size(kReduceOps)],
              1 + number * 37 % 300,
              kProtocols[(number * 5 / 3) % std::size(kProtocols)],
              {Values::numbers, number}};
    if (!algorithm::carries(*call.protocol, call.type)) call.protocol = route::Protocol::ll;
    caller.run(call, {}, trouble);
  }
}

TEST_P(Epoch, MixedCallsAcrossTheWrap) {
  for (const std::uint32_t start :
       {0xffffffffu - 40, 0xffffffffu - 17, 0xffffffffu - 3, 0xfffffffeu, 0xffffffffu, 0xfffffffdu,
        0x7ffffffeu, 0x7fffffffu, 0x80000000u, 0xfffeu, 0xffffu, 0xfeu, 0u}) {
    for (const int nranks : {2, 3, 5}) {
      runtime::Options options = patient();
      options.slots = 32;
      options.chunk_bytes = 256;
      options.packets = 16;
      options.lines = 4;
      options.initial_epoch = start;
      const auto problems = run_communicators(GetParam(), nranks, options,
                                              [&](runtime::Communicator& comm, Exchange&, Problems& trouble) {
                                                for (std::uint32_t i = 0; i < 4; ++i)
                                                  mixed_calls(comm, i * 16, trouble);
                                              });
      EXPECT_EQ(problems, "") << nranks << " ranks from epoch " << start;
    }
  }
}

// One rank is held up in each call across the wrap, so that its peers are ahead of it by as much as they can
// be.
TEST_P(Epoch, ARankThatIsOneBehindAcrossTheWrap) {
  for (const std::uint32_t start : {0xfffffffbu, 0xfffffffcu}) {
    runtime::Options options = patient();
    options.slots = 32;
    options.chunk_bytes = 256;
    options.packets = 16;
    options.lines = 4;
    options.initial_epoch = start;
    const auto problems = run_communicators(GetParam(), 3, options,
                                            [&](runtime::Communicator& comm, Exchange&, Problems& trouble) {
                                              Caller caller(comm, 2048);
                                              for (std::uint32_t i = 0; i < 24; ++i) {
                                                const Call call{DataType::f32,
                                                                ReduceOp::sum,
                                                                1 + i * 29 % 200,
                                                                kProtocols[i / 2 % std::size(kProtocols)],
                                                                {Values::numbers, i}};
                                                runtime::CallOptions how;
                                                if (comm.rank() == 1) {
                                                  how.delay_point = 1 + i % 3;
                                                  how.delay_ns = 500'000;
                                                }
                                                caller.run(call, {}, trouble, how);
                                              }
                                            });
    EXPECT_EQ(problems, "") << "from epoch " << start;
  }
}

// Lines and flags that were written once in a cycle still lie there when the numbering comes to the same
// epoch again: they must not look as if they were new. The epochs between are skipped by hand.
void expect_old_ones_are_cleared(route::Protocol protocol) {
  constexpr int kRanks = 3;
  constexpr std::uint32_t kLast = 12;
  const auto other = protocol == route::Protocol::ll ? route::Protocol::simple : route::Protocol::ll;
  const protocol::RegionLayout layout{.nranks = kRanks, .slots = 32, .cells = 16};
  const std::size_t stride = layout.region_bytes();
  struct alignas(128) Block {
    char bytes[128];
  };
  std::vector<Block> memory(stride / sizeof(Block) * kRanks);
  std::vector<protocol::RegionState<exec::HostSpace>> states(kRanks);
  Problems problems[kRanks];

  // One round each, so that calls and epochs are the same: at two epochs of a cycle (one a bank) the protocol
  // in question, with a sender that is late, at all others the other one.
  const auto up_to_last = [&](std::uint64_t cycle) {
    std::vector<std::thread> threads;
    for (int rank = 0; rank < kRanks; ++rank) {
      threads.emplace_back([&, rank] {
        auto& state = states[static_cast<std::size_t>(rank)];
        std::uint32_t abort = 0, claim = 0, valid = 0;
        protocol::FaultRecord record{};
        while (state.epoch != kLast) {
          const std::uint32_t epoch = protocol::next_epoch<exec::HostSpace>(state.epoch);
          const bool rare = epoch == 6 || epoch == 7;
          const std::uint64_t count = 60;
          std::vector<std::uint32_t> data(count);
          const Source source{Values::numbers, cycle * 100 + epoch};
          for (std::uint64_t at = 0; at < count; ++at)
            data[at] = static_cast<std::uint32_t>(input_bits(source, DataType::f32, rank, at));
          const bool late = rare && rank == 0;
          const algorithm::host::AllReduceCall call{
              .region = memory[0].bytes,
              .stride = stride,
              .rank = rank,
              .layout = layout,
              .state = &state,
              .control = {&abort, &claim, &valid, &record, 120'000'000'000u},
              .collective = static_cast<std::uint32_t>(Collective::all_reduce),
              .type = DataType::f32,
              .op = ReduceOp::sum,
              .protocol = rare ? protocol : other,
              .send = data.data(),
              .recv = data.data(),
              .count = count,
              .delay = {late ? algorithm::DelayPoint::before_publish : algorithm::DelayPoint::none,
                        late ? 20'000'000u : 0u}};
          algorithm::host::all_reduce(call);
          if (valid != 0)
            return problems[rank].add("epoch %u failed, waiting for rank %d", epoch, record.peer);
          for (std::uint64_t at = 0; at < count; ++at) {
            std::uint64_t inputs[kRanks];
            for (int peer = 0; peer < kRanks; ++peer)
              inputs[peer] = input_bits(source, DataType::f32, peer, at);
            if (reduce_reference(DataType::f32, ReduceOp::sum, inputs) == data[at]) continue;
            problems[rank].add("cycle %llu, epoch %u, element %llu is wrong",
                               static_cast<unsigned long long>(cycle), epoch,
                               static_cast<unsigned long long>(at));
            break;
          }
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  };

  up_to_last(0);
  for (const std::uint32_t start : {0xfffffff8u, 0xfffffff9u}) {
    for (auto& state : states) state.epoch = start;
    up_to_last(start);
  }
  for (int rank = 0; rank < kRanks; ++rank) EXPECT_EQ(problems[rank].text(), "") << "rank " << rank;
}

TEST(EpochCycle, LinesOfACycleAgoAreNotTakenForNew) { expect_old_ones_are_cleared(route::Protocol::ll); }
TEST(EpochCycle, FlagsOfACycleAgoAreNotTakenForNew) { expect_old_ones_are_cleared(route::Protocol::simple); }

}  // namespace
}  // namespace nearlight::test
