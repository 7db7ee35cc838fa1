// The ring of the last calls, and its reading while it is written.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "runtime/call_log.hpp"

namespace nearlight::runtime {
namespace {

void call(CallLog& log, std::size_t count) {
  log.begin(Collective::all_reduce, count, DataType::f32, ReduceOp::max);
  log.take(route::Algorithm::two_shot, route::Protocol::sentinel);
  EXPECT_TRUE(log.end({}).ok());
}

TEST(CallLog, TellsACallBeforeItHasEnded) {
  CallLog log;
  EXPECT_TRUE(log.last_calls().empty());
  log.begin(Collective::all_reduce, 7, DataType::bf16, ReduceOp::sum);
  ASSERT_EQ(log.last_calls().size(), 1u);
  EXPECT_EQ(log.last_calls()[0].state, CallState::running);
  EXPECT_FALSE(log.last_calls()[0].routed);
  log.take(route::Algorithm::one_shot, route::Protocol::simple);
  const CallEntry entry = log.last_calls()[0];
  EXPECT_EQ(entry.number, 1u);
  EXPECT_EQ(entry.count, 7u);
  EXPECT_EQ(entry.type, DataType::bf16);
  EXPECT_EQ(entry.op, ReduceOp::sum);
  EXPECT_TRUE(entry.routed);
  EXPECT_EQ(entry.algorithm, route::Algorithm::one_shot);
  EXPECT_EQ(entry.protocol, route::Protocol::simple);
  EXPECT_EQ(log.end(failure(Code::timeout, "late")).code(), Code::timeout);
  EXPECT_EQ(log.last_calls()[0].state, CallState::failed);
  EXPECT_EQ(log.counters().failures, 1u);
  log.begin(Collective::barrier, 0, DataType::i8, ReduceOp::sum);
  EXPECT_TRUE(log.end({}, true).ok());
  EXPECT_EQ(log.last_calls()[1].state, CallState::captured);
  EXPECT_EQ(log.counters().captured, 1u);
  EXPECT_EQ(log.counters().of(Collective::barrier), 1u);
}

TEST(CallLog, KeepsTheLastInTheirOrder) {
  CallLog log;
  for (std::size_t i = 1; i <= 3 * CallLog::kLast + 5; ++i) call(log, i);
  const auto calls = log.last_calls();
  ASSERT_EQ(calls.size(), CallLog::kLast);
  for (std::size_t i = 0; i < calls.size(); ++i) {
    EXPECT_EQ(calls[i].number, 2 * CallLog::kLast + 6 + i);
    EXPECT_EQ(calls[i].count, calls[i].number);
  }
}

// Each call's count is its number: an entry put together from two calls would show.
TEST(CallLog, NoEntryIsMadeOfTwoCalls) {
  CallLog log;
  std::atomic<bool> done{false}, looked{false};
  std::thread writer([&] {
    // On a busy machine it would else be done before the first look.
    for (std::size_t i = 1; i <= 200'000; ++i) {
      call(log, i);
      if (i == 1000) looked.wait(false);
    }
    done = true;
  });
  std::uint64_t seen = 0, newest = 0;
  while (!done.load()) {
    std::uint64_t before = 0;
    for (const CallEntry& entry : log.last_calls()) {
      ++seen;
      ASSERT_EQ(entry.count, entry.number);
      ASSERT_GT(entry.number, before);
      before = entry.number;
    }
    if (before != 0 && !looked.exchange(true)) looked.notify_one();
    // A writer that goes round the ring during the look leaves nothing to see.
    if (before == 0) continue;
    EXPECT_GE(before + CallLog::kLast, newest);
    newest = before;
  }
  writer.join();
  EXPECT_EQ(log.last_calls().back().number, 200'000u);
  EXPECT_EQ(log.counters().of(Collective::all_reduce), 200'000u);
  EXPECT_GT(seen, 0u);
}

}  // namespace
}  // namespace nearlight::runtime
