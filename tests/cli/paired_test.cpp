// What a part of the library costs: the figures, and the waits that only the end of the process ends.
#include "cli/bench/paired.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "cli/bench/watchdog.hpp"
#include "cli/bench/without_limits.hpp"
#include "cli/exit_code.hpp"
#include "runtime/create.hpp"
#include "tests/support/ranks.hpp"

namespace nearlight::bench {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

Measured entry_of(const char* impl, std::vector<double> turn_p50_us, std::size_t count = 32) {
  Measured entry;
  entry.what = {count, DataType::f32, ReduceOp::sum};
  entry.impl = impl;
  for (const double us : turn_p50_us) entry.samples.add_us(us);
  entry.turn_p50_us = std::move(turn_p50_us);
  return entry;
}

TEST(Cost, IsTheMedianOverTurnsOfWhatBothHadThere) {
  // The machine is twice as slow in the later turns, for both: +1, +2, +3, +4 %.
  const Measured without = entry_of("nearlight", {1.0, 1.0, 2.0, 2.0});
  const Measured with = entry_of("nearlight_traced", {1.01, 1.04, 2.06, 2.04});
  const cli::Cost cost = cost_of(with, without);
  EXPECT_NEAR(cost.percent, 2, 1e-9);
  EXPECT_NEAR(cost.low_percent, 1, 1e-9);
  EXPECT_NEAR(cost.high_percent, 3, 1e-9);
}

TEST(Cost, StandsBesideNearlightWhicheverHasThePart) {
  std::vector<Measured> traced = {entry_of("nearlight", {1.0}), entry_of("nearlight_traced", {1.5})};
  set_costs(Paired::trace, traced);
  EXPECT_FALSE(traced[0].cost.has_value());
  ASSERT_TRUE(traced[1].cost.has_value());
  EXPECT_NEAR(traced[1].cost->percent, 50, 1e-9);
  EXPECT_THAT(cost_table(Paired::trace, traced), HasSubstr("         128     1.5000    1.0000    +50.00"));

  std::vector<Measured> bounded = {entry_of("nearlight", {1.5}), entry_of("nearlight_unbounded", {1.0})};
  set_costs(Paired::deadline, bounded);
  ASSERT_TRUE(bounded[1].cost.has_value());
  EXPECT_NEAR(bounded[1].cost->percent, 50, 1e-9);
  EXPECT_THAT(cost_table(Paired::deadline, bounded),
              HasSubstr("         128     1.5000    1.0000    +50.00"));
}

TEST(Cost, OfEachSizeAlone) {
  std::vector<Measured> all = {entry_of("nearlight", {1.0}, 2), entry_of("nearlight_traced", {1.1}, 2),
                               entry_of("nearlight", {2.0}, 4), entry_of("nearlight_traced", {2.4}, 4)};
  set_costs(Paired::trace, all);
  EXPECT_NEAR(all[1].cost->percent, 10, 1e-9);
  EXPECT_NEAR(all[3].cost->percent, 20, 1e-9);
  EXPECT_FALSE(all[2].cost.has_value());
  EXPECT_THAT(cost_table(Paired::none, {}), IsEmpty());
}

// The code without limits gives the same results as the library's, by every protocol that a CPU has.
TEST(WithoutLimits, HasTheSameResults) {
  for (const int nranks : {2, 3}) {
    EXPECT_EQ(
        test::run_communicators(test::Kind::threads, nranks, test::patient(),
                                [](runtime::Communicator& comm, Exchange&, test::Problems& problems) {
                                  for (const auto protocol : algorithm::kProtocols) {
                                    for (const DataType type : {DataType::f32, DataType::bf16}) {
                                      for (const std::size_t bytes : {4u, 128u, 5000u * 4}) {
                                        std::vector<std::byte> input(bytes), own(bytes), other(bytes);
                                        for (std::size_t i = 1; i < bytes; i += 2)
                                          input[i] = static_cast<std::byte>(0x30 + (i + comm.rank()) % 16);
                                        runtime::CallOptions options;
                                        options.protocol = protocol;
                                        for (auto* output : {&own, &other}) {
                                          const Status status = comm.all_reduce(
                                              input.data(), output->data(), bytes / size_of(type), type,
                                              ReduceOp::sum, nullptr, options);
                                          if (!status.ok())
                                            return problems.add("%s", status.to_string().c_str());
                                          options.instead = &code_without_limits();
                                        }
                                        if (own != other)
                                          problems.add("%s of %s, %zu bytes differ",
                                                       algorithm::name_of(protocol), name_of(type), bytes);
                                      }
                                    }
                                  }
                                }),
        "");
  }
}

// It does not look at the limit: a peer that is later than that is waited for, and nothing is recorded. With
// the limits the peer comes when the first one has given up, without them some limits after it has begun.
TEST(WithoutLimits, WaitsLongerThanTheLimit) {
  for (const bool bounded : {true, false}) {
    runtime::Options options = test::patient();
    options.timeout = std::chrono::milliseconds(50);
    std::atomic<bool> begun{false}, ended{false};
    EXPECT_EQ(test::run_communicators(test::Kind::threads, 2, options,
                                      [&](runtime::Communicator& comm, Exchange&, test::Problems& problems) {
                                        if (comm.rank() == 1) {
                                          test::wait_until([&] { return (bounded ? ended : begun).load(); },
                                                           std::chrono::seconds(60));
                                          if (!bounded)
                                            std::this_thread::sleep_for(5 * std::chrono::milliseconds(50));
                                        }
                                        begun = true;
                                        float value = 1;
                                        runtime::CallOptions call;
                                        if (!bounded) call.instead = &code_without_limits();
                                        const Status status = comm.all_reduce(
                                            &value, &value, 1, DataType::f32, ReduceOp::sum, nullptr, call);
                                        ended = true;
                                        if (bounded && comm.rank() == 0) {
                                          if (status.code() != Code::timeout)
                                            problems.add("no time-out: %s", status.to_string().c_str());
                                        }
                                        if (!bounded && (!status.ok() || value != 2))
                                          problems.add("%g, %s", static_cast<double>(value),
                                                       status.to_string().c_str());
                                      }),
              "");
  }
}

class WatchdogDeath : public testing::Test {
 protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

TEST_F(WatchdogDeath, EndsTheProcessAtTheLimit) {
  EXPECT_EXIT(
      {
        Watchdog dog(std::chrono::milliseconds(300));
        dog.begin();
        std::this_thread::sleep_for(std::chrono::seconds(60));
      },
      testing::ExitedWithCode(cli::kExitWrong), "did not come in time");
}

TEST_F(WatchdogDeath, EndsTheProcessWhenAbandoned) {
  EXPECT_EXIT(
      {
        Watchdog dog(std::chrono::hours(1));
        dog.begin();
        dog.abandon();
        std::this_thread::sleep_for(std::chrono::seconds(60));
      },
      testing::ExitedWithCode(cli::kExitWrong), "another rank has failed");
}

TEST(Watchdog, LetsWhatGoesOnGoOn) {
  Watchdog dog(std::chrono::milliseconds(500));
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(1500);
  // Nobody is late here but a machine that stops this thread for half a second.
  while (std::chrono::steady_clock::now() < end) {
    dog.begin();
    std::this_thread::yield();
    dog.end();
  }
  dog.abandon();  // nothing is under way
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
}

}  // namespace
}  // namespace nearlight::bench
