// One thing that a CPU rank sends is lost, or changed on the way: nobody hangs, who misses it says whom it
// missed, and the checks that all other tests rely on find the wrong result.
#include <gtest/gtest.h>

#include <array>
#include <atomic>

#include "runtime/create.hpp"
#include "tests/support/checked_call.hpp"
#include "tests/support/ranks.hpp"

namespace nearlight::test {
namespace {

using namespace std::chrono_literals;
using route::Algorithm;
using route::Protocol;

constexpr int kRanks = 3, kSender = 1;
constexpr std::uint32_t kLost = 1, kSpoilt = 2;

struct Way {
  Algorithm algorithm;
  Protocol protocol;
};
constexpr Way kWays[] = {
    {Algorithm::one_shot, Protocol::ll},          {Algorithm::one_shot, Protocol::simple},
    {Algorithm::one_shot, Protocol::sentinel},    {Algorithm::two_shot, Protocol::ll},
    {Algorithm::two_shot, Protocol::sentinel},    {Algorithm::one_shot, Protocol::ll128},
    {Algorithm::two_shot_atomic, Protocol::ll128}};

std::string name_of(const Way& way) {
  return std::string(algorithm::name_of(way.algorithm)) + ", " + algorithm::name_of(way.protocol);
}

struct Outcome {
  std::atomic<int> right, wrong, missed;  // ranks
};

// A call of 100 elements (by wide lines 300) in small pieces, the sender's `index`-th thing being `fault`.
std::string run(Kind kind, const Way& way, DataType type, std::uint32_t fault, std::uint64_t index,
                std::chrono::milliseconds limit, Outcome& outcome) {
  runtime::Options options = patient();
  options.timeout = limit;
  options.slots = 32;
  options.chunk_bytes = 128;
  options.packets = 16;
  options.lines = 4;
  options.deterministic = false;
  return run_communicators(
      kind, kRanks, options, [&](runtime::Communicator& comm, Exchange& exchange, Problems& problems) {
        Caller caller(comm, 4096);
        const std::uint64_t count = way.protocol == Protocol::ll128 ? 300 : 100;
        const Call call{type, ReduceOp::sum, count, way.protocol, {Values::pattern, 1}, way.algorithm};
        runtime::CallOptions extra;
        if (comm.rank() == kSender) {
          extra.packet_fault = fault;
          extra.faulty_packet = index;
        }
        meet(exchange, problems);
        const std::int64_t begin_ns = clock_ns();
        Problems found;
        caller.run(call, {}, found, extra);
        if (clock_ns() - begin_ns > std::chrono::nanoseconds(limit + 60s).count()) problems.add("too late");
        if (found.none()) {
          ++outcome.right;
        } else if (comm.status().ok()) {
          ++outcome.wrong;
        } else {
          expect_failure(problems, "the call", comm.status(), Code::timeout, {"nothing from rank"});
          if (const auto known = comm.fault(); known && known->peer == kSender) ++outcome.missed;
        }
      });
}

std::vector<Kind> both() {
#if defined(__SANITIZE_THREAD__)
  return {Kind::threads};
#else
  return {Kind::threads, Kind::processes};
#endif
}

TEST(PacketFault, WhatIsLostIsMissedByItsReceiver) {
  for (const Kind kind : both()) {
    for (const Way& way : kWays) {
      for (const std::uint64_t index : {0, 1, 2, 3}) {
        const Shared<Outcome> outcome;
        EXPECT_EQ(run(kind, way, DataType::f32, kLost, index, 150ms, *outcome), "");
        // In simple a lost run of cells (here the first two) is found by its content only: the flag came.
        const bool cells = way.protocol == Protocol::simple && index < 2;
        EXPECT_EQ(outcome->wrong, cells ? 1 : 0) << name_of(way) << ", " << index;
        EXPECT_GE(outcome->missed, cells ? 0 : 1) << name_of(way) << ", " << index;
      }
    }
  }
}

TEST(PacketFault, WhatIsSpoiltIsAWrongResultThatTheChecksFind) {
  for (const Kind kind : both()) {
    for (const Way& way : kWays) {
      for (const DataType type : {DataType::f32, DataType::bf16, DataType::i32}) {
        if (!algorithm::carries(way.protocol, type)) continue;
        if (!algorithm::reduces(way.algorithm, type, ReduceOp::sum)) continue;
        for (const std::uint64_t index : {0, 1, 5}) {
          // Flags, which are spoilt by being lost, come after the first two runs of cells.
          if (way.protocol == Protocol::simple && index == 5) continue;
          const Shared<Outcome> outcome;
          EXPECT_EQ(run(kind, way, type, kSpoilt, index, 60s, *outcome), "");
          EXPECT_GE(outcome->wrong, 1) << name_of(way) << ", " << index;
          EXPECT_EQ(outcome->missed, 0) << name_of(way) << ", " << index;
        }
      }
    }
  }
}

TEST(PacketFault, BeyondWhatIsSentNothingHappens) {
  for (const Way& way : kWays) {
    for (const std::uint32_t fault : {kLost, kSpoilt}) {
      const Shared<Outcome> outcome;
      EXPECT_EQ(run(Kind::threads, way, DataType::f32, fault, 1'000'000, 60s, *outcome), "");
      EXPECT_EQ(outcome->right, kRanks) << name_of(way);
    }
  }
}

TEST(PacketFault, IsRefusedWhereThereIsNoCodeForIt) {
  EXPECT_EQ(run_communicators(Kind::threads, 2, patient(),
                              [](runtime::Communicator& comm, Exchange&, Problems& problems) {
                                double value = 1;
                                runtime::CallOptions how;
                                how.packet_fault = kLost;
                                expect_failure(problems, "f64",
                                               comm.all_reduce(&value, &value, 1, DataType::f64,
                                                               ReduceOp::sum, nullptr, how),
                                               Code::invalid_argument, {"packet_fault"});
                              }),
            "");
}

}  // namespace
}  // namespace nearlight::test
