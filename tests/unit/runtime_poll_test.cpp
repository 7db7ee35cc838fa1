// The wait that everything else is made of.
#include <gtest/gtest.h>

#include <nearlight/detail/exec/host_space.hpp>
#include <nearlight/detail/protocol/poll.hpp>

namespace nearlight::protocol {
namespace {

using exec::HostSpace;

TEST(Poll, EndsWhenItHolds) {
  for (const int attempts : {1, 2, 300, 5000}) {
    int left = attempts;
    EXPECT_EQ(poll<HostSpace>({.timeout_ns = 60'000'000'000}, [&] { return --left == 0; }), Wait::ok);
    EXPECT_EQ(left, 0);
  }
}

TEST(Poll, EndsByTheTimeLimit) {
  const std::uint64_t begin_ns = HostSpace::now_ns();
  EXPECT_EQ(poll<HostSpace>({.timeout_ns = 20'000'000}, [] { return false; }), Wait::timeout);
  EXPECT_GE(HostSpace::now_ns() - begin_ns, 20'000'000u);
}

TEST(Poll, EndsByTheAbortWord) {
  std::uint32_t abort = 1;
  EXPECT_EQ(poll<HostSpace>({.abort = &abort, .timeout_ns = 60'000'000'000}, [] { return false; }),
            Wait::aborted);
}

// With more ranks than processors each poll may take a slice of the processor, and a rank that shall stop
// must not need a thousand of them to see it.
TEST(Poll, LooksOftenOnceItLetsOthersRun) {
  for (const int late : {300, 1000, 5000}) {
    std::uint32_t abort = 0;
    int attempts = 0;
    const Wait outcome = poll<HostSpace>({.abort = &abort, .timeout_ns = 60'000'000'000}, [&] {
      if (++attempts == late) abort = 1;
      return false;
    });
    EXPECT_EQ(outcome, Wait::aborted);
    EXPECT_LE(attempts - late, static_cast<int>(HostSpace::kPollsPerLateCheck) + 1) << late;
  }
}

// A peer may send the last of its data, end, and be noticed, all between two looks at the data.
TEST(Poll, WhatArrivedBeforeTheAbortCounts) {
  for (std::uint32_t late = 1; late <= 2 * HostSpace::kPollsPerCheck + 1; ++late) {
    std::uint32_t abort = 0, attempts = 0;
    const Wait outcome = poll<HostSpace>({.abort = &abort, .timeout_ns = 60'000'000'000}, [&] {
      if (++attempts == late) {
        abort = 1;  // all that is waited for is there by now
        return false;
      }
      return attempts > late;
    });
    ASSERT_EQ(outcome, Wait::ok) << "at attempt " << late;
  }
}

// Whose time passes only when a test says so: what a wait's own polls take, a busy machine decides.
struct SetClockSpace : HostSpace {
  static inline std::uint64_t time_ns = 0;
  static std::uint64_t now_ns() { return time_ns; }
};

// The same for a thread that did not run while the time passed, wherever that was.
TEST(Poll, WhatArrivedBeforeTheTimeLimitCounts) {
  constexpr std::uint64_t kTimeoutNs = 200'000'000;
  for (std::uint32_t late = HostSpace::kPollsPerCheck + 1; late <= 2 * HostSpace::kPollsPerCheck; ++late) {
    SetClockSpace::time_ns = 1;
    std::uint32_t attempts = 0;
    const Wait outcome = poll<SetClockSpace>({.timeout_ns = kTimeoutNs}, [&] {
      if (++attempts == late) {
        SetClockSpace::time_ns += kTimeoutNs;  // all that is waited for is there by now
        return false;
      }
      return attempts > late;
    });
    ASSERT_EQ(outcome, Wait::ok) << "at attempt " << late;
    ASSERT_EQ(attempts, late + 1);
  }
}

// The last look is one, and at what is there: nothing came, so the wait ends with the limit it ran into.
TEST(Poll, TheLastLookIsTheLast) {
  constexpr std::uint64_t kTimeoutNs = 200'000'000;
  SetClockSpace::time_ns = 1;
  std::uint32_t attempts = 0;
  const Wait outcome = poll<SetClockSpace>({.timeout_ns = kTimeoutNs}, [&] {
    if (++attempts == 2 * HostSpace::kPollsPerCheck) SetClockSpace::time_ns += kTimeoutNs;
    return false;
  });
  EXPECT_EQ(outcome, Wait::timeout);
  EXPECT_EQ(attempts, 2 * HostSpace::kPollsPerCheck + 1);
}

// The end of a call ends every wait in it, however short that one was, but not what is there.
TEST(Poll, EndsWithTheCall) {
  constexpr std::uint64_t kTimeoutNs = 200, kEndNs = 1000;
  const Control<SetClockSpace> control{.timeout_ns = kTimeoutNs, .end_ns = kEndNs};
  SetClockSpace::time_ns = 1;
  int waits = 0;
  const auto comes_late = [&control](std::uint64_t step_ns, bool comes) {
    std::uint32_t attempts = 0;
    return poll<SetClockSpace>(control, [&] {
      // Behind the first look at the clock.
      if (++attempts != HostSpace::kPollsPerCheck + 1) return false;
      SetClockSpace::time_ns += step_ns;
      return comes;
    });
  };
  while (SetClockSpace::time_ns + kTimeoutNs - 1 < kEndNs) {
    ASSERT_EQ(comes_late(kTimeoutNs - 1, true), Wait::ok);
    ++waits;
  }
  EXPECT_EQ(waits, 5);
  EXPECT_EQ(comes_late(kEndNs - 1 - SetClockSpace::time_ns, true), Wait::ok);
  EXPECT_EQ(comes_late(1, false), Wait::timeout);
  EXPECT_EQ(poll<SetClockSpace>(control, [] { return true; }), Wait::ok);
}

TEST(Faults, TheFirstIsKept) {
  std::uint32_t abort = 0, claim = 0, valid = 0;
  FaultRecord record{};
  const Control<HostSpace> control{&abort, &claim, &valid, &record, 1};
  FaultRecord first{}, second{};
  first.kind = 1;
  first.peer = 2;
  second.kind = 2;
  second.peer = 3;
  report_fault<HostSpace>(control, first);
  EXPECT_EQ(valid, 1u);
  EXPECT_EQ(abort, 1u);
  EXPECT_NE(record.time_ns, 0u);
  report_fault<HostSpace>(control, second);
  EXPECT_EQ(record.kind, 1u);
  EXPECT_EQ(record.peer, 2);
}

}  // namespace
}  // namespace nearlight::protocol
