// Ranks that are started separately: each is a program of its own, which learns from its environment who it
// is.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "tests/mp/rank_program.hpp"
#include "tests/support/ranks.hpp"
#include "tests/support/spawned.hpp"

namespace nearlight::test {
namespace {

using namespace std::chrono_literals;
using testing::AnyOf;
using testing::HasSubstr;

Spawned start(int rank, int nranks, const std::string& key, const std::string& mode, int limit_ms = 60'000,
              int start_after_ms = 0) {
  return Spawned({own_program(), "--rank", mode, std::to_string(limit_ms), std::to_string(start_after_ms)},
                 {"NEARLIGHT_RANK=" + std::to_string(rank), "NEARLIGHT_NRANKS=" + std::to_string(nranks),
                  "NEARLIGHT_KEY=" + key});
}

void expect_all_right(std::vector<Spawned>& ranks) {
  for (Spawned& rank : ranks) {
    EXPECT_EQ(rank.wait(), 0) << rank.output();
    EXPECT_THAT(rank.output(), HasSubstr("all right"));
  }
}

TEST(SeparateProcesses, ReduceTogether) {
  for (const int nranks : {1, 2, 4, 8}) {
    const std::string key = fresh_key();
    std::vector<Spawned> ranks;
    for (int rank = 0; rank < nranks; ++rank) ranks.push_back(start(rank, nranks, key, "reduce"));
    expect_all_right(ranks);
  }
}

TEST(SeparateProcesses, RankZeroMayComeLast) {
  const std::string key = fresh_key();
  std::vector<Spawned> ranks;
  for (int rank = 0; rank < 3; ++rank)
    ranks.push_back(start(rank, 3, key, "reduce", 60'000, rank == 0 ? 500 : 0));
  expect_all_right(ranks);
}

// Destroyed, and at once created again under the same key.
TEST(SeparateProcesses, ComeAgainAndAgain) {
  const std::string key = fresh_key();
  std::vector<Spawned> ranks;
  for (int rank = 0; rank < 3; ++rank) ranks.push_back(start(rank, 3, key, "cycles"));
  expect_all_right(ranks);
}

TEST(SeparateProcesses, TorchrunsVariablesAreTaken) {
  std::vector<Spawned> ranks;
  for (const char* rank : {"0", "1"}) {
    ranks.emplace_back(
        std::vector<std::string>{own_program(), "--rank", "reduce"},
        std::vector<std::string>{std::string("RANK=") + rank, std::string("LOCAL_RANK=") + rank,
                                 "WORLD_SIZE=2", "LOCAL_WORLD_SIZE=2", "MASTER_ADDR=127.0.0.1",
                                 "MASTER_PORT=" + std::to_string(1024 + ::getpid() % 60'000)});
  }
  expect_all_right(ranks);
  EXPECT_THAT(ranks[1].output(), HasSubstr("rank 1 of 2; rank, nranks and key from torchrun: RANK=1"));
}

TEST(SeparateProcesses, ARankThatIsMissingIsNamedByAll) {
  const std::string key = fresh_key();
  Spawned zero = start(0, 3, key, "meet", 500), two = start(2, 3, key, "meet", 500);
  for (Spawned* rank : {&zero, &two}) {
    EXPECT_EQ(rank->wait(), 3);
    EXPECT_THAT(rank->output(), HasSubstr("rank(s) 1 did not come"));
  }
}

TEST(SeparateProcesses, WithoutALauncherTheyAreTold) {
  Spawned alone({own_program(), "--rank", "meet"}, {});
  EXPECT_EQ(alone.wait(), 3);
  EXPECT_THAT(alone.output(), AllOf(HasSubstr("NEARLIGHT_RANK"), HasSubstr("torchrun")));
}

// Whoever it is, and wherever it is: before, in and after the meeting.
TEST(SeparateProcesses, AKillInTheMeetingEndsAllInTime) {
  for (int victim = 0; victim < 3; ++victim) {
    for (const auto moment : {2ms, 50ms}) {
      const std::string key = fresh_key();
      std::vector<Spawned> ranks;
      // The last rank comes late, so that the meeting is still going on.
      for (int rank = 0; rank < 4; ++rank)
        ranks.push_back(start(rank, 4, key, "meet", 1000, rank == 3 ? 250 : 0));
      std::this_thread::sleep_for(moment);
      ranks[static_cast<std::size_t>(victim)].kill(SIGKILL);
      for (int rank = 0; rank < 4; ++rank) {
        Spawned& one = ranks[static_cast<std::size_t>(rank)];
        const int end = one.wait(60s);
        if (rank == victim) {
          EXPECT_EQ(end, -SIGKILL);
          continue;
        }
        EXPECT_EQ(end, 3) << "rank " << rank << " after " << moment.count() << " ms: " << one.output();
        // Rank 3 may find nobody any more.
        EXPECT_THAT(one.output(), AnyOf(HasSubstr("rank " + std::to_string(victim) + " (process"),
                                        HasSubstr("rank(s) " + std::to_string(victim) + " did not come"),
                                        HasSubstr("rank 0 did not come"), HasSubstr("gave up"),
                                        HasSubstr("has left"), HasSubstr("has ended")));
      }
    }
  }
}

TEST(SeparateProcesses, AKillInACollectiveIsNoticedAtOnce) {
  for (int victim = 0; victim < 3; ++victim) {
    const std::string key = fresh_key();
    std::vector<Spawned> ranks;
    for (int rank = 0; rank < 3; ++rank) ranks.push_back(start(rank, 3, key, "endless", 100'000));
    for (const Spawned& rank : ranks) ASSERT_TRUE(rank.wait_for_output("going")) << rank.output();
    const auto begin = std::chrono::steady_clock::now();
    ranks[static_cast<std::size_t>(victim)].kill(SIGKILL);
    const std::string name = "rank " + std::to_string(victim) + ": its process " +
                             std::to_string(ranks[static_cast<std::size_t>(victim)].pid()) + " has ended";
    // The first of the others to leave is noticed by the last, too.
    int named = 0;
    for (int rank = 0; rank < 3; ++rank) {
      Spawned& one = ranks[static_cast<std::size_t>(rank)];
      EXPECT_EQ(one.wait(60s), rank == victim ? -SIGKILL : 3) << one.output();
      if (one.output().find(name) != std::string::npos) ++named;
    }
    EXPECT_GE(named, 1) << ranks[0].output() << ranks[1].output() << ranks[2].output();
    EXPECT_LT(std::chrono::steady_clock::now() - begin, 30s);
  }
}

// All are killed at any moment, and the same ranks come again at once under the same key.
TEST(SeparateProcesses, AfterAKillOfAllTheyMayComeAgain) {
  const std::string key = fresh_key();
  for (const auto moment : {1ms, 10ms, 30ms, 100ms}) {
    std::vector<Spawned> ranks;
    for (int rank = 0; rank < 3; ++rank) ranks.push_back(start(rank, 3, key, "endless"));
    std::this_thread::sleep_for(moment);
    for (const Spawned& rank : ranks) rank.kill(SIGKILL);
    for (Spawned& rank : ranks) EXPECT_EQ(rank.wait(), -SIGKILL);
  }
  std::vector<Spawned> ranks;
  for (int rank = 0; rank < 3; ++rank) ranks.push_back(start(rank, 3, key, "reduce"));
  expect_all_right(ranks);
}

#ifdef NEARLIGHT_MPIRUN
TEST(SeparateProcesses, UnderMpirun) {
  std::vector<std::string> words = {NEARLIGHT_MPIRUN, "-np", "2", "--oversubscribe", "--bind-to", "none"};
  if (::geteuid() == 0) words.emplace_back("--allow-run-as-root");
  words.insert(words.end(), {own_program(), "--rank", "reduce"});
  Spawned run(words, {});
  EXPECT_EQ(run.wait(100s), 0) << run.output();
  for (const std::string rank : {"0", "1"}) {
    EXPECT_THAT(run.output(), HasSubstr("rank " + rank +
                                        " of 2; rank, nranks and key from Open MPI: OMPI_COMM_WORLD_RANK=" +
                                        rank + ", OMPI_COMM_WORLD_SIZE=2"));
  }
  EXPECT_THAT(run.output(), HasSubstr("PMIX_NAMESPACE="));
  EXPECT_THAT(run.output(), testing::ContainsRegex("all right(.|\n)*all right"));
}
#endif

}  // namespace
}  // namespace nearlight::test

int main(int argc, char** argv) {
  if (argc > 1 && std::string(argv[1]) == "--rank") return nearlight::test::rank_main(argc, argv);
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
