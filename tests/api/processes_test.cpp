// Ranks that are programs of their own, through the C and C++ API: who they are told by the caller or by the
// environment, and what they say when it does not work.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <vector>

#include "tests/api/rank_program.hpp"
#include "tests/support/ranks.hpp"
#include "tests/support/spawned.hpp"

namespace nearlight::test {
namespace {

using namespace std::chrono_literals;
using testing::AllOf;
using testing::HasSubstr;

using Environment = std::vector<std::string>;

// Without what this test's own launcher may have set.
const Environment kNoJob = {
    "NEARLIGHT_RANK", "NEARLIGHT_NRANKS",     "NEARLIGHT_KEY",        "RANK",
    "WORLD_SIZE",     "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "PMI_RANK",
    "PMI_SIZE",       "SLURM_PROCID",         "SLURM_NTASKS",         "SLURM_STEP_NUM_TASKS"};

Spawned start(const std::string& how, int rank, int nranks, const std::string& key,
              const Environment& variables = {}, int limit_ms = 60'000) {
  Environment environment = kNoJob;
  environment.insert(environment.end(), variables.begin(), variables.end());
  return Spawned({own_program(), "--rank", how, std::to_string(rank), std::to_string(nranks), key,
                  std::to_string(limit_ms)},
                 environment);
}

// The variables that torchrun sets; the port tells this job from others.
Environment torchrun(int rank, int nranks) {
  const std::string rank_text = std::to_string(rank), size = std::to_string(nranks);
  return {"RANK=" + rank_text,     "LOCAL_RANK=" + rank_text,
          "WORLD_SIZE=" + size,    "LOCAL_WORLD_SIZE=" + size,
          "MASTER_ADDR=127.0.0.1", "MASTER_PORT=" + std::to_string(1024 + ::getpid() % 60'000)};
}

void expect_all_right(std::vector<Spawned>& ranks) {
  for (const Spawned& rank : ranks) EXPECT_TRUE(rank.wait_for_output("all right")) << rank.output();
  for (const Spawned& rank : ranks) rank.kill(SIGTERM);
  for (Spawned& rank : ranks) EXPECT_EQ(rank.wait(), 0) << rank.output();
}

// It ends with a failure whose text has all of `words`.
void expect_failure(Spawned rank, const std::vector<std::string>& words) {
  EXPECT_EQ(rank.wait(), 3) << rank.output();
  for (const std::string& word : words) EXPECT_THAT(rank.output(), HasSubstr(word));
}

TEST(ApiProcesses, MeetByRankSizeAndKey) {
  for (const std::string how : {"c", "cpp"}) {
    for (const int nranks : {1, 2, 4}) {
      const std::string key = fresh_key();
      std::vector<Spawned> ranks;
      for (int rank = 0; rank < nranks; ++rank) ranks.push_back(start(how, rank, nranks, key));
      expect_all_right(ranks);
      EXPECT_THAT(ranks.back().output(),
                  HasSubstr("rank " + std::to_string(nranks - 1) + " of " + std::to_string(nranks)));
    }
  }
}

TEST(ApiProcesses, AKeyMayHave200Bytes) {
  std::string key = fresh_key();
  key.resize(200, 'k');
  std::vector<Spawned> ranks;
  for (int rank = 0; rank < 2; ++rank) ranks.push_back(start("c", rank, 2, key));
  expect_all_right(ranks);
}

TEST(ApiProcesses, TorchrunTellsThemAll) {
  std::vector<Spawned> ranks;
  ranks.push_back(start("job", 0, 0, "", torchrun(0, 2)));
  ranks.push_back(start("c", -1, -1, "-", torchrun(1, 2)));
  expect_all_right(ranks);
  EXPECT_THAT(ranks[0].output(), HasSubstr("rank 0 of 2"));
  EXPECT_THAT(ranks[1].output(), HasSubstr("rank 1 of 2"));
}

TEST(ApiProcesses, OwnVariablesTellThemAll) {
  const std::string key = fresh_key();
  std::vector<Spawned> ranks;
  for (const std::string rank : {"0", "1"}) {
    ranks.push_back(
        start("job", 0, 0, "", {"NEARLIGHT_RANK=" + rank, "NEARLIGHT_NRANKS=2", "NEARLIGHT_KEY=" + key}));
  }
  expect_all_right(ranks);
}

// Some of it from the caller, the rest from the job.
TEST(ApiProcesses, OnlyTheKeyOrOnlyTheNumbersFromTheJob) {
  std::vector<Spawned> ranks;
  // The other way round than torchrun has it.
  for (int rank = 0; rank < 2; ++rank) ranks.push_back(start("c", 1 - rank, 2, "-", torchrun(rank, 2)));
  expect_all_right(ranks);
  EXPECT_THAT(ranks[0].output(), HasSubstr("rank 1 of 2"));
  const std::string key = fresh_key();
  std::vector<Spawned> others;
  for (int rank = 0; rank < 2; ++rank) others.push_back(start("c", -1, -1, key, torchrun(rank, 2)));
  expect_all_right(others);
}

TEST(ApiProcesses, ARankThatDoesNotComeIsNamed) {
  expect_failure(start("c", 0, 3, fresh_key(), {}, 300),
                 {"code 8: ", "nearlightCommCreateHost on rank 0: ", "rank(s) 1, 2 did not come"});
  expect_failure(start("c", 1, 3, fresh_key(), {}, 300),
                 {"code 8: ", "nearlightCommCreateHost on rank 1: ", "rank 0 did not come"});
}

TEST(ApiProcesses, RanksThatDoNotFitAreToldSo) {
  const std::string key = fresh_key();
  Spawned zero = start("c", 0, 3, key, {}, 20'000), one = start("c", 1, 2, key, {}, 20'000);
  for (Spawned* rank : {&zero, &one}) {
    EXPECT_EQ(rank->wait(), 3);
    EXPECT_THAT(rank->output(), HasSubstr("code 5: "));
  }
}

TEST(ApiProcesses, WhatIsWrongWithTheJobIsNamed) {
  const std::string call = "code 4: invalid argument: nearlightCommCreateHost: ";
  expect_failure(start("job", 0, 0, ""), {call, "neither given nor found", "NEARLIGHT_RANK", "torchrun"});
  expect_failure(start("c", 0, 2, "-"), {call, "key: neither given nor found", "NEARLIGHT_KEY"});
  expect_failure(start("job", 0, 0, "", {"WORLD_SIZE=2"}), {call, "torchrun: RANK is not set"});
  expect_failure(start("job", 0, 0, "", {"NEARLIGHT_RANK=2", "NEARLIGHT_NRANKS=2", "NEARLIGHT_KEY=k"}),
                 {call, "NEARLIGHT_RANK is \"2\"", "from 0 to 1"});
  expect_failure(start("job", 0, 0, "", {"NEARLIGHT_RANK=0", "NEARLIGHT_NRANKS=9", "NEARLIGHT_KEY=k"}),
                 {call, "NEARLIGHT_NRANKS=9", "nranks: 9 is not between 1 and 8"});
  Environment several = torchrun(1, 4);
  several[3] = "LOCAL_WORLD_SIZE=2";
  expect_failure(start("job", 0, 0, "", several),
                 {"code 100: unsupported: nearlightCommCreateHost: ", "several hosts"});
}

TEST(ApiProcesses, ARankThatIsKilledIsNoticed) {
  const std::string key = fresh_key();
  Spawned zero = start("cpp", 0, 2, key), one = start("cpp", 1, 2, key);
  for (const Spawned* rank : {&zero, &one}) ASSERT_TRUE(rank->wait_for_output("all right"));
  one.kill(SIGKILL);
  EXPECT_EQ(zero.wait(60s), 3);
  EXPECT_THAT(zero.output(),
              AllOf(HasSubstr("code 6: "), HasSubstr("nearlightAllReduce on rank 0: rank 1: its process " +
                                                     std::to_string(one.pid()) + " has ended")));
}

}  // namespace
}  // namespace nearlight::test

int main(int argc, char** argv) {
  if (argc > 1 && std::string(argv[1]) == "--rank") return nearlight::test::rank_main(argc, argv);
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
