#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <memory>
#include <thread>

#include "base/bounded_call.hpp"

namespace nearlight {
namespace {

using namespace std::chrono_literals;

Status too_late() { return failure(Code::timeout, "too late"); }

TEST(BoundedCall, ReturnsWhatTheCallReturned) {
  EXPECT_TRUE(bounded_call([](LeftAlone&) { return Status(); }, Deadline::after(1min), too_late()).ok());
  const Status failed = bounded_call([](LeftAlone&) { return failure(Code::cuda_error, "no"); },
                                     Deadline::after(1min), too_late());
  EXPECT_EQ(failed.code(), Code::cuda_error);
  EXPECT_EQ(failed.text(), "no");
}

// The deadline can be farther away than a clock's arithmetic takes.
TEST(BoundedCall, TakesAFarDeadline) {
  EXPECT_TRUE(
      bounded_call([](LeftAlone&) { return Status(); }, Deadline::after(24h * 36500), too_late()).ok());
}

// Two that need each other, begun by one thread, which waits for them afterwards.
TEST(BoundedCall, InTwoHalvesBeginsAtOnce) {
  std::promise<void> first_is_there, second_is_there;
  const auto first = begin_bounded_call(
      [&](LeftAlone&) {
        first_is_there.set_value();
        return second_is_there.get_future().wait_for(1min) == std::future_status::ready ? Status()
                                                                                        : too_late();
      },
      Deadline::after(2min), too_late());
  const auto second = begin_bounded_call(
      [&](LeftAlone&) {
        second_is_there.set_value();
        return first_is_there.get_future().wait_for(1min) == std::future_status::ready
                   ? failure(Code::cuda_error, "no")
                   : too_late();
      },
      Deadline::after(2min), too_late());
  EXPECT_TRUE(first().ok());
  EXPECT_EQ(second().code(), Code::cuda_error);
}

TEST(BoundedCall, WhoNeverWaitsLeavesItAlone) {
  const auto left_alone = std::make_shared<std::promise<bool>>();
  auto outcome = left_alone->get_future();
  {
    const auto rest = begin_bounded_call(
        [left_alone](LeftAlone& alone) {
          left_alone->set_value(alone.after(1min));
          return Status();
        },
        Deadline::after(1min), too_late());
  }
  ASSERT_EQ(outcome.wait_for(1min), std::future_status::ready);
  EXPECT_TRUE(outcome.get());
}

TEST(BoundedCall, IsAThreadOfItsOwn) {
  const auto here = std::this_thread::get_id();
  std::thread::id there = here;
  const auto call = [&there](LeftAlone&) {
    there = std::this_thread::get_id();
    return Status();
  };
  ASSERT_TRUE(bounded_call(call, Deadline::after(1min), too_late()).ok());
  EXPECT_NE(there, here);
}

// The call goes on with what it owns, and is told that it is alone.
TEST(BoundedCall, LeavesBehindWhatDoesNotEnd) {
  const auto let_go = std::make_shared<std::promise<void>>();
  const auto told = std::make_shared<std::promise<bool>>();
  auto was_told = told->get_future();
  const auto call = [gate = let_go->get_future().share(), told](LeftAlone& alone) {
    gate.wait_for(1min);
    told->set_value(alone.after(1min));
    return Status();
  };
  const Status late = bounded_call(call, Deadline::after(20ms), too_late());
  EXPECT_EQ(late.code(), Code::timeout);
  EXPECT_EQ(late.text(), "too late");
  let_go->set_value();
  ASSERT_EQ(was_told.wait_for(1min), std::future_status::ready);
  EXPECT_TRUE(was_told.get());
}

TEST(BoundedCall, IsNotAloneWhileSomebodyWaits) {
  bool alone_at_once = true;
  const auto call = [&alone_at_once](LeftAlone& alone) {
    alone_at_once = alone.after(5ms);
    return Status();
  };
  ASSERT_TRUE(bounded_call(call, Deadline::after(1min), too_late()).ok());
  EXPECT_FALSE(alone_at_once);
}

}  // namespace
}  // namespace nearlight
