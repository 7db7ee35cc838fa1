// The comparison of calls that waits for nobody.
#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "runtime/call_check.hpp"
#include "runtime/steering.hpp"

namespace nearlight::runtime {
namespace {

Call call_of(std::size_t count) { return {Collective::all_reduce, count, DataType::f32, ReduceOp::sum}; }

TEST(CallLedger, WhoComesSecondFindsTheDifferenceAndStopsAll) {
  CallLedger ledger(3);
  std::vector<std::string> stopped(3);
  for (int rank = 0; rank < 3; ++rank) {
    ledger.join(
        rank, [&stopped, rank](const Status& why) { stopped[static_cast<std::size_t>(rank)] = why.text(); });
  }
  EXPECT_TRUE(ledger.post(2, 0, call_of(5)).ok());
  EXPECT_TRUE(ledger.post(2, 1, call_of(6)).ok());  // far ahead
  EXPECT_TRUE(ledger.post(0, 0, call_of(5)).ok());
  EXPECT_TRUE(ledger.post(1, 0, call_of(5)).ok());
  ledger.leave(1);
  const Status status = ledger.post(0, 1, call_of(7));
  EXPECT_EQ(status.code(), Code::invalid_usage);
  EXPECT_EQ(status.text(), "call 1 differs between ranks: count is 6 on rank 2, 7 on rank 0");
  EXPECT_EQ(stopped, (std::vector<std::string>{status.text(), "", status.text()}));
  ledger.clear();
  EXPECT_TRUE(ledger.post(1, 0, call_of(8)).ok());
  EXPECT_FALSE(ledger.post(0, 0, call_of(9)).ok());
}

TEST(CallLedger, ComparesAllThatSteersACall) {
  const Call first = call_of(5);
  const auto expect_told = [&](const Call& other, const std::string& what) {
    CallLedger ledger(2);
    EXPECT_TRUE(ledger.post(0, 0, first).ok());
    EXPECT_EQ(ledger.post(1, 0, other).text(), "call 0 differs between ranks: " + what + " on rank 1");
  };
  Call other = first;
  other.collective = Collective::barrier;
  expect_told(other, "the collective is all_reduce on rank 0, barrier");
  other = first;
  other.type = DataType::i32;
  expect_told(other, "type is float on rank 0, int32");
  other = first;
  other.op = ReduceOp::max;
  expect_told(other, "op is sum on rank 0, max");
  other = first;
  other.path = number_of(route::Forced{route::Algorithm::two_shot, {}});
  expect_told(other, "the forced path is not set on rank 0, two_shot");
  other = first;
  other.options.algorithm = route::Algorithm::two_shot;
  expect_told(other, "algorithm is not given on rank 0, two_shot");
  other = first;
  other.options.protocol = route::Protocol::ll;
  expect_told(other, "protocol is not given on rank 0, ll");
  other = first;
  other.options.grid = 4;
  expect_told(other, "grid is 0 on rank 0, 4");
  other = first;
  other.options.threads = 64;
  expect_told(other, "threads is 0 on rank 0, 64");
  other = first;
  other.options.first_slot = 8;
  expect_told(other, "first_slot is 0 on rank 0, 8");
  other = first;
  other.captured = true;
  expect_told(other, "captured into a graph is no on rank 0, yes");
  // The largest is compared as `count`, the others by themselves.
  const std::size_t counts[3] = {4, 9, 2};
  CollectiveCall gather{Collective::all_gather_v, nullptr, nullptr, 9, DataType::f32};
  gather.counts = counts;
  other = first;
  other.counts = counts_of(gather, 3);
  EXPECT_EQ(other.counts[1], 9u);
  EXPECT_EQ(other.counts[3], 0u);
  expect_told(other, "the count of rank 0 is 0 on rank 0, 4");
  // Of these each rank has its own.
  gather.collective = Collective::all_to_all_v;
  EXPECT_EQ(counts_of(gather, 3), first.counts);
}

TEST(CallLedger, OfThreadsThatRunApart) {
  CallLedger ledger(4);
  std::vector<std::thread> threads;
  std::vector<std::string> texts(4);
  for (int rank = 0; rank < 4; ++rank) {
    threads.emplace_back([&, rank] {
      for (std::uint64_t i = 0; i < 20'000; ++i) {
        const Status status = ledger.post(rank, i, call_of(rank == 3 && i == 19'999 ? 1 : i % 7));
        if (!status.ok()) texts[static_cast<std::size_t>(rank)] = status.text();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  int told = 0;
  for (const std::string& text : texts) {
    if (text.empty()) continue;
    ++told;
    EXPECT_NE(text.find("call 19999"), std::string::npos) << text;
  }
  EXPECT_GE(told, 1);
}

}  // namespace
}  // namespace nearlight::runtime
