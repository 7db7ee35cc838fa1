// What holds for ranks that are threads only: a rank can leave while its thread goes on.
#include "bootstrap/in_process.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <memory>
#include <thread>

namespace nearlight::bootstrap {
namespace {

Deadline patience() { return Deadline::after(std::chrono::seconds(60)); }

TEST(InProcess, RankThatLeavesEndsTheOthersWaits) {
  auto group = make_in_process_group(3);
  auto waiting = std::async(std::launch::async, [&] { return group[0]->barrier(patience()); });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  const auto start = std::chrono::steady_clock::now();
  group[1].reset();
  const Status first = waiting.get();
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
  EXPECT_EQ(first.code(), Code::remote_error);
  EXPECT_NE(first.text().find("rank 1 has left"), std::string::npos) << first.to_string();
  const Status second = group[2]->barrier(patience());
  EXPECT_EQ(second.code(), Code::remote_error);
  EXPECT_NE(second.text().find("rank 1"), std::string::npos) << second.to_string();
}

TEST(InProcess, RankThatLeftBeforeTheCall) {
  auto group = make_in_process_group(2);
  group[1].reset();
  EXPECT_EQ(group[0]->barrier(patience()).code(), Code::remote_error);
}

TEST(InProcess, RankMayLeaveOnceItHasDoneItsPart) {
  for (int round = 0; round < 200; ++round) {
    auto group = make_in_process_group(2);
    auto other = std::async(std::launch::async, [rank = std::move(group[1])]() mutable {
      const Status status = rank->barrier(patience());
      rank.reset();
      return status;
    });
    EXPECT_TRUE(group[0]->barrier(patience()).ok());
    EXPECT_TRUE(other.get().ok());
  }
}

TEST(InProcess, GroupOfOneNeverWaits) {
  auto group = make_in_process_group(1);
  EXPECT_TRUE(group[0]->barrier(Deadline::after_ms(0)).ok());
  EXPECT_TRUE(group[0]->share_fd(0, 0, Deadline::after_ms(0)).ok());
}

TEST(InProcess, FarDeadlineDoesNotOverflow) {
  auto group = make_in_process_group(2);
  auto other = std::async(std::launch::async, [&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    return group[1]->barrier(patience());
  });
  EXPECT_TRUE(group[0]->barrier(Deadline::after(std::chrono::hours(24 * 365 * 100))).ok());
  EXPECT_TRUE(other.get().ok());
}

}  // namespace
}  // namespace nearlight::bootstrap
