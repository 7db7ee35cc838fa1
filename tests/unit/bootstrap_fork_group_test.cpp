#include "bootstrap/fork_group.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <thread>

#include "tests/support/ranks.hpp"

namespace nearlight::bootstrap {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using test::Shared;

Deadline patience() { return Deadline::after(seconds(60)); }

int open_descriptors() {
  int count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) ++count;
  return count;
}

// No child of this process is left, running or dead.
void expect_no_children() {
  int status = 0;
  EXPECT_EQ(::waitpid(-1, &status, WNOHANG), -1);
  EXPECT_EQ(errno, ECHILD);
}

// How the ranks that survive saw the group end.
struct Seen {
  std::atomic<int> code{-1};
  std::atomic<std::int64_t> at_ns{0};
  char text[256]{};

  void set(const Status& status) {
    std::snprintf(text, sizeof text, "%s", status.text().c_str());
    at_ns = test::clock_ns();
    code = static_cast<int>(status.code());
  }
};

TEST(ForkGroup, TellsHowEachRankEnded) {
  const auto outcome = run_forked(4, [](Exchange& exchange) {
    if (exchange.rank() == 1) return 3;
    if (exchange.rank() == 2) ::raise(SIGTERM);
    return exchange.rank() == 3 ? 255 : 0;
  });
  ASSERT_TRUE(outcome.ok()) << outcome.status().to_string();
  const auto& ranks = outcome.value().ranks;
  ASSERT_EQ(ranks.size(), 4u);
  EXPECT_TRUE(ranks[0].ok());
  EXPECT_EQ(ranks[1].exit_code, 3);
  EXPECT_EQ(ranks[2].exit_code, -1);
  EXPECT_EQ(ranks[2].signal, SIGTERM);
  EXPECT_FALSE(ranks[2].over_time);
  EXPECT_EQ(ranks[3].exit_code, 255);
  EXPECT_FALSE(outcome.value().ok());
  EXPECT_EQ(outcome.value().to_string(),
            "rank 1: exit code 3; rank 2: signal 15 (Terminated); rank 3: exit code 255");
  expect_no_children();
}

TEST(ForkGroup, AllWell) {
  const auto outcome = run_forked(2, [](Exchange&) { return 0; });
  ASSERT_TRUE(outcome.ok());
  EXPECT_TRUE(outcome.value().ok());
  EXPECT_EQ(outcome.value().to_string(), "all ranks ended well");
}

TEST(ForkGroup, RefusesBadArguments) {
  const auto body = [](Exchange&) { return 0; };
  for (const int nranks : {-1, 0, kMaxForkRanks + 1}) {
    const auto outcome = run_forked(nranks, body);
    EXPECT_EQ(outcome.status().code(), Code::invalid_argument);
    EXPECT_NE(outcome.status().text().find("nranks"), std::string::npos);
  }
  EXPECT_EQ(run_forked(1, {}).status().code(), Code::invalid_argument);
  expect_no_children();
}

TEST(ForkGroup, LargestGroup) {
  const auto outcome = run_forked(kMaxForkRanks, [](Exchange& exchange) {
    const auto all = gather_values(exchange, exchange.rank(), patience());
    return all.ok() && all.value()[kMaxForkRanks - 1] == kMaxForkRanks - 1 ? 0 : 1;
  });
  ASSERT_TRUE(outcome.ok()) << outcome.status().to_string();
  EXPECT_TRUE(outcome.value().ok()) << outcome.value().to_string();
}

TEST(ForkGroup, TimeLimitKillsAndReaps) {
  const auto start = std::chrono::steady_clock::now();
  const auto outcome = run_forked(3,
                                  [](Exchange& exchange) {
                                    if (exchange.rank() == 0) return 0;
                                    if (exchange.rank() == 1) ::raise(SIGSTOP);  // a stopped process too
                                    std::this_thread::sleep_for(seconds(600));
                                    return 0;
                                  },
                                  {.time_limit = milliseconds(400), .on_started = {}});
  EXPECT_LT(std::chrono::steady_clock::now() - start, seconds(30));
  ASSERT_TRUE(outcome.ok()) << outcome.status().to_string();
  EXPECT_TRUE(outcome.value().ranks[0].ok());
  for (const std::size_t rank : {1u, 2u}) {
    EXPECT_TRUE(outcome.value().ranks[rank].over_time);
    EXPECT_EQ(outcome.value().ranks[rank].to_string(), "killed at the time limit");
  }
  expect_no_children();
}

// One rank is lost while the others wait for it with a far deadline.
void lose_a_rank(const std::function<void()>& loss, std::initializer_list<std::string_view> words) {
  struct State {
    std::atomic<std::int64_t> lost_ns{0};
    std::array<Seen, 3> seen;
  };
  const Shared<State> state;
  const auto outcome = run_forked(3, [&](Exchange& exchange) {
    if (!exchange.barrier(patience()).ok()) return 1;
    if (exchange.rank() == 1) {
      std::this_thread::sleep_for(milliseconds(100));
      state->lost_ns = test::clock_ns();
      loss();
      return 0;
    }
    state->seen[static_cast<std::size_t>(exchange.rank())].set(exchange.barrier(patience()));
    return 0;
  });
  ASSERT_TRUE(outcome.ok()) << outcome.status().to_string();
  for (const std::size_t rank : {0u, 2u}) {
    const Seen& seen = state->seen[rank];
    EXPECT_EQ(seen.code, static_cast<int>(Code::remote_error)) << seen.text;
    for (const std::string_view word : words)
      EXPECT_NE(std::string_view(seen.text).find(word), std::string::npos) << seen.text;
    EXPECT_LT(seen.at_ns - state->lost_ns, std::int64_t{10'000'000'000});
  }
  expect_no_children();
}

TEST(ForkGroup, KilledRankEndsTheOthersWaits) {
  lose_a_rank([] { ::raise(SIGKILL); }, {"rank 1", "signal 9"});
}
TEST(ForkGroup, RankThatExitsEndsTheOthersWaits) {
  lose_a_rank([] { ::_exit(7); }, {"rank 1", "exit code 7"});
}
TEST(ForkGroup, RankThatReturnsEndsTheOthersWaits) {
  lose_a_rank([] {}, {"rank 1"});
}

TEST(ForkGroup, RankThatWasKilledAfterItsPartIsNotMissed) {
  const auto outcome = run_forked(2, [](Exchange& exchange) {
    const bool fine = exchange.barrier(patience()).ok();
    if (exchange.rank() == 1) ::raise(SIGKILL);
    return fine ? 0 : 1;
  });
  ASSERT_TRUE(outcome.ok());
  EXPECT_EQ(outcome.value().to_string(), "rank 1: signal 9 (Killed)");
}

TEST(ForkGroup, ParentLearnsThePidsAndMayStopARank) {
  struct State {
    std::atomic<int> ready{0};
    Seen seen;
    std::array<pid_t, 2> pids{};
  };
  const Shared<State> state;
  std::vector<pid_t> told;
  const auto outcome =
      run_forked(2,
                 [&](Exchange& exchange) {
                   state->pids[static_cast<std::size_t>(exchange.rank())] = ::getpid();
                   state->ready.fetch_add(1);
                   if (exchange.rank() == 1) {
                     for (;;) std::this_thread::sleep_for(milliseconds(10));
                   }
                   state->seen.set(exchange.barrier(Deadline::after_ms(500)));
                   return 0;
                 },
                 {.time_limit = seconds(3), .on_started = [&](std::span<const pid_t> pids) {
                    told.assign(pids.begin(), pids.end());
                    EXPECT_TRUE(test::wait_until([&] { return state->ready == 2; }, seconds(60)));
                    EXPECT_EQ(::kill(pids[1], SIGSTOP), 0);
                  }});
  ASSERT_TRUE(outcome.ok()) << outcome.status().to_string();
  EXPECT_EQ(told, std::vector<pid_t>(state->pids.begin(), state->pids.end()));
  // A stopped process is not gone: the others give up at their deadline.
  EXPECT_EQ(state->seen.code, static_cast<int>(Code::timeout)) << state->seen.text;
  EXPECT_NE(std::string_view(state->seen.text).find("rank(s) 1"), std::string_view::npos) << state->seen.text;
  EXPECT_TRUE(outcome.value().ranks[0].ok());
  EXPECT_TRUE(outcome.value().ranks[1].over_time);
}

TEST(ForkGroup, KilledFromOutsideInTheMiddleOfTraffic) {
  struct State {
    std::atomic<std::int64_t> rounds{0};
    std::array<Seen, 4> seen;
  };
  const Shared<State> state;
  const auto outcome =
      run_forked(4,
                 [&](Exchange& exchange) {
                   Status status;
                   while (status.ok()) {
                     status = exchange.barrier(patience());
                     if (exchange.rank() == 0) state->rounds.fetch_add(1);
                   }
                   state->seen[static_cast<std::size_t>(exchange.rank())].set(status);
                   return 0;
                 },
                 {.on_started = [&](std::span<const pid_t> pids) {
                   EXPECT_TRUE(test::wait_until([&] { return state->rounds > 100; }, seconds(60)));
                   EXPECT_EQ(::kill(pids[2], SIGKILL), 0);
                 }});
  ASSERT_TRUE(outcome.ok()) << outcome.status().to_string();
  EXPECT_EQ(outcome.value().to_string(), "rank 2: signal 9 (Killed)");
  for (const std::size_t rank : {0u, 1u, 3u}) {
    EXPECT_EQ(state->seen[rank].code, static_cast<int>(Code::remote_error)) << state->seen[rank].text;
    EXPECT_NE(std::string_view(state->seen[rank].text).find("rank 2"), std::string_view::npos)
        << state->seen[rank].text;
  }
}

TEST(ForkGroup, LeavesNoDescriptorsOpen) {
  const auto once = [] {
    const auto outcome = run_forked(4, [](Exchange& exchange) {
      if (exchange.rank() == 3) ::raise(SIGKILL);
      return exchange.share_fd(exchange.rank() == 0 ? 0 : -1, 0, patience()).ok() ? 1 : 0;
    });
    ASSERT_TRUE(outcome.ok()) << outcome.status().to_string();
  };
  once();
  const int before = open_descriptors();
  for (int i = 0; i < 5; ++i) once();
  EXPECT_EQ(open_descriptors(), before);
}

TEST(ForkGroup, ChildrenHoldOnlyTheirOwnLines) {
  // Its own receiving end and the three others' sending ends, beyond what the parent had open.
  const int before = open_descriptors();
  const auto outcome = run_forked(4, [before](Exchange&) { return open_descriptors() - before; });
  ASSERT_TRUE(outcome.ok());
  for (const RankExit& end : outcome.value().ranks) EXPECT_EQ(end.exit_code, 4);
}

TEST(ForkGroup, LackOfDescriptorsIsAFailureWithoutLeaks) {
  rlimit old{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &old), 0);
  const int before = open_descriptors();
  rlimit low = old;
  low.rlim_cur = static_cast<rlim_t>(before + 5);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &low), 0);
  const auto outcome = run_forked(8, [](Exchange&) { return 0; });
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &old), 0);
  EXPECT_EQ(outcome.status().code(), Code::system_error);
  EXPECT_NE(outcome.status().text().find("socketpair"), std::string::npos) << outcome.status().to_string();
  EXPECT_EQ(open_descriptors(), before);
  expect_no_children();
}

TEST(ForkGroup, ReceiverWithoutFreeDescriptorFailsAllRanks) {
  struct State {
    std::array<Seen, 3> seen;
  };
  const Shared<State> state;
  const auto outcome = run_forked(3, [&](Exchange& exchange) {
    if (exchange.rank() == 2) {
      const int free = ::dup(0);
      ::close(free);
      rlimit limit{};
      ::getrlimit(RLIMIT_NOFILE, &limit);
      limit.rlim_cur = static_cast<rlim_t>(free);
      ::setrlimit(RLIMIT_NOFILE, &limit);
    }
    state->seen[static_cast<std::size_t>(exchange.rank())].set(
        exchange.share_fd(exchange.rank() == 0 ? 0 : -1, 0, patience()).status());
    return 0;
  });
  ASSERT_TRUE(outcome.ok());
  for (const Seen& seen : state->seen)
    EXPECT_EQ(seen.code, static_cast<int>(Code::system_error)) << seen.text;
  EXPECT_NE(std::string_view(state->seen[0].text).find("rank 2"), std::string_view::npos)
      << state->seen[0].text;
}

TEST(ForkGroup, ChildrenDieWithTheParent) {
  struct State {
    std::array<std::atomic<pid_t>, 2> pids{};
  };
  const Shared<State> state;
  // The orphans become this process's children, so that their end can be waited for.
  ASSERT_EQ(::prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
  const pid_t parent = ::fork();
  ASSERT_GE(parent, 0);
  if (parent == 0) {
    static_cast<void>(run_forked(2, [&](Exchange& exchange) {
      state->pids[static_cast<std::size_t>(exchange.rank())] = ::getpid();
      for (;;) std::this_thread::sleep_for(seconds(1));
      return 0;
    }));
    ::_exit(0);
  }
  EXPECT_TRUE(test::wait_until([&] { return state->pids[0] != 0 && state->pids[1] != 0; }, seconds(60)));
  EXPECT_EQ(::kill(parent, SIGKILL), 0);
  int status = 0;
  EXPECT_EQ(::waitpid(parent, &status, 0), parent);
  for (const auto& pid : state->pids) {
    EXPECT_TRUE(test::wait_until([&] { return ::waitpid(pid, &status, WNOHANG) == pid; }, seconds(30)));
    EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
  }
  EXPECT_EQ(::prctl(PR_SET_CHILD_SUBREAPER, 0), 0);
}

TEST(ForkGroup, BufferedOutputIsWrittenOnce) {
  std::array<int, 2> pipe_ends{};
  ASSERT_EQ(::pipe(pipe_ends.data()), 0);
  std::FILE* const stream = ::fdopen(pipe_ends[1], "w");
  ASSERT_NE(stream, nullptr);
  std::fputs("before ", stream);
  const auto outcome = run_forked(1, [stream](Exchange&) {
    std::fputs("child ", stream);
    return 0;
  });
  EXPECT_TRUE(outcome.ok());
  std::fputs("after", stream);
  std::fclose(stream);
  std::array<char, 100> text{};
  EXPECT_GT(::read(pipe_ends[0], text.data(), text.size() - 1), 0);
  EXPECT_STREQ(text.data(), "before child after");
  ::close(pipe_ends[0]);
}

}  // namespace
}  // namespace nearlight::bootstrap
