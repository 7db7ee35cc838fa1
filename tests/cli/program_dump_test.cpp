// `nearlight dump` asks ranks that are programs of their own: this test program itself, started again.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>

#include "bootstrap/process_group.hpp"
#include "cli/exit_code.hpp"
#include "runtime/create.hpp"
#include "tests/cli/run_program.hpp"
#include "tests/support/ranks.hpp"
#include "tests/support/spawned.hpp"

namespace nearlight::test {

// One of two CPU ranks: `calls` all-reduces of 3 floats, then one that rank 1 does not come to.
int dump_rank_main(int rank, const std::string& key, int timeout_ms) {
  ::alarm(180);  // should the test be killed
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  auto exchange = bootstrap::join_process_group({rank, 2, key}, Deadline::after_ms(60'000));
  if (!exchange.ok()) return 5;
  runtime::Options options;
  options.timeout = std::chrono::milliseconds(timeout_ms);
  auto comm = runtime::create_host(std::move(*exchange), options);
  if (!comm.ok()) return 6;
  float data[3] = {1, 2, 3};
  const auto call = [&] { return (*comm)->all_reduce(data, data, 3, DataType::f32, ReduceOp::sum, nullptr); };
  for (int i = 0; i < 4; ++i) {
    if (!call().ok()) return 7;
  }
  std::printf("ready\n");
  if (rank == 1) {
    for (;;) ::pause();
  }
  const Status outcome = call();
  std::printf("%s\n", outcome.to_string().c_str());
  return outcome.code() == Code::timeout ? 0 : 8;
}

namespace {

using testing::HasSubstr;

struct Pair {
  std::vector<Spawned> ranks;

  Pair(int timeout_ms, const std::vector<std::string>& environment) {
    const std::string key = fresh_key();
    for (const char* rank : {"0", "1"}) {
      ranks.emplace_back(
          std::vector<std::string>{own_program(), "--dump-rank", rank, key, std::to_string(timeout_ms)},
          environment);
    }
    for (const Spawned& rank : ranks) EXPECT_TRUE(rank.wait_for_output("ready")) << rank.output();
  }
  std::string pid(std::size_t rank) const { return std::to_string(ranks[rank].pid()); }
};

// Rank 1 is stopped, as by a debugger; rank 0 waits for it.
TEST(Dump, OfARankThatWaitsForOneThatIsStopped) {
  const Pair pair(120'000, {"NEARLIGHT_DUMP=1"});
  pair.ranks[1].kill(SIGSTOP);
  Ran ran;
  // "ready" comes before the call; soon it waits.
  ASSERT_TRUE(wait_until(
      [&] {
        ran = run_program("dump " + pair.pid(0));
        return ran.exit_code != cli::kExitOk || ran.out.find("running") != std::string::npos;
      },
      std::chrono::seconds(60)));
  ASSERT_EQ(ran.exit_code, cli::kExitOk) << ran.err;
  EXPECT_THAT(ran.out, HasSubstr("rank 0 of 2, process " + pair.pid(0) + ", host, memory shm"));
  EXPECT_THAT(ran.out, HasSubstr("status: ok"));
  EXPECT_THAT(ran.out, HasSubstr("counters: 4 all_reduces, 0 barriers, 48 bytes, 0 captured, 0 failures"));
  EXPECT_THAT(ran.out, HasSubstr("regions (last epoch closed): 0: 4\n"));
  // What rank 1 sent last lies in the bank of even epochs; the fifth is missing.
  EXPECT_THAT(ran.out, HasSubstr("from rank 1, bank 0: flag 0; line of epoch 4 and 4"));
  EXPECT_THAT(ran.out, HasSubstr("from rank 1, bank 1: flag 0; line of epoch 3 and 3"));
  EXPECT_THAT(ran.out, HasSubstr("#4 all_reduce of 3 float, sum, one_shot ll: done"));
  EXPECT_THAT(ran.out, HasSubstr("#5 all_reduce of 3 float, sum, one_shot ll: running"));
  // The stopped one cannot answer, and that is told in time.
  const Ran stopped = run_program("dump --timeout 300 " + pair.pid(1), 60);
  EXPECT_EQ(stopped.exit_code, cli::kExitWrong);
  EXPECT_THAT(stopped.err, HasSubstr("process " + pair.pid(1) + " did not answer in time"));
  // Once it goes on, it can.
  pair.ranks[1].kill(SIGCONT);
  EXPECT_THAT(run_program("dump " + pair.pid(1)).out, HasSubstr("rank 1 of 2"));
}

TEST(Dump, AProcessThatDoesNotAnswerIsTold) {
  const Pair pair(120'000, {"NEARLIGHT_DUMP"});
  const Ran ran = run_program("dump " + pair.pid(0));
  EXPECT_EQ(ran.exit_code, cli::kExitUsage);
  EXPECT_THAT(ran.err, HasSubstr("NEARLIGHT_DUMP=1"));
  EXPECT_THAT(run_program("dump 4194304").err, HasSubstr("there is no process 4194304"));
  EXPECT_EQ(run_program("dump").exit_code, cli::kExitUsage);
  EXPECT_EQ(run_program("dump x").exit_code, cli::kExitUsage);
  EXPECT_EQ(run_program("dump 0").exit_code, cli::kExitUsage);
}

TEST(Dump, ATimeOutWritesTheStateDown) {
  const std::string folder = temporary_path("dumps");
  ASSERT_EQ(std::system(("mkdir -p '" + folder + "'").c_str()), 0);
  Pair pair(1500, {"NEARLIGHT_DUMP_DIR=" + folder});
  EXPECT_EQ(pair.ranks[0].wait(), 0) << pair.ranks[0].output();
  const std::string path = folder + "/nearlight-dump-" + pair.pid(0) + "-rank0-1.txt";
  EXPECT_THAT(pair.ranks[0].output(), HasSubstr("time-out on rank 0 after 4 all_reduces"));
  EXPECT_THAT(pair.ranks[0].output(), HasSubstr("state in " + path));
  std::ifstream file(path);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  EXPECT_THAT(text, HasSubstr("status: timeout: all_reduce on rank 0: nothing from rank 1"));
  EXPECT_THAT(text, HasSubstr("fault record: time-out of rank 0 that waited for rank 1 in all_reduce: epoch "
                              "5, region 0, slot 0, expected 5, seen 3"));
  EXPECT_THAT(text, HasSubstr("0: 5 FAILED"));
  EXPECT_THAT(text, HasSubstr("from rank 1, bank 1: flag 0; line of epoch 3 and 3"));
  ASSERT_EQ(std::system(("rm -r '" + folder + "'").c_str()), 0);
}

TEST(Dump, WithoutAFolderATimeOutIsOneLine) {
  Pair pair(1500, {"NEARLIGHT_DUMP_DIR"});
  EXPECT_EQ(pair.ranks[0].wait(), 0) << pair.ranks[0].output();
  EXPECT_THAT(pair.ranks[0].output(),
              HasSubstr("nearlight: time-out on rank 0 after 4 all_reduces and 0 barriers; last call #5 "
                        "all_reduce of 3 float, sum, one_shot ll: running; NEARLIGHT_DUMP_DIR=FOLDER"));
}

TEST(Dump, AFolderThatIsNotThereIsTold) {
  Pair pair(1500, {"NEARLIGHT_DUMP_DIR=/nowhere/at/all"});
  EXPECT_EQ(pair.ranks[0].wait(), 0) << pair.ranks[0].output();
  EXPECT_THAT(pair.ranks[0].output(), HasSubstr("open /nowhere/at/all/nearlight-dump-"));
}

}  // namespace
}  // namespace nearlight::test

int main(int argc, char** argv) {
  if (argc == 5 && std::string(argv[1]) == "--dump-rank") {
    return nearlight::test::dump_rank_main(std::atoi(argv[2]), argv[3], std::atoi(argv[4]));
  }
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
