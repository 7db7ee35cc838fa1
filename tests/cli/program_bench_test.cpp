// `nearlight bench` between CPU processes: the text that comes out, and the result file.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "cli/exit_code.hpp"
#include "cli/results.hpp"
#include "tests/cli/run_program.hpp"

namespace nearlight::test {
namespace {

using testing::AnyOf;
using testing::Each;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::MatchesRegex;
using testing::Not;
using testing::StartsWith;

TEST(Bench, PrintsTheTableOfNcclTests) {
  const Ran ran = run_program("bench all_reduce --backend host --ranks 2 -b 8 -e 128 -f 4 -n 20 --rounds 2");
  ASSERT_EQ(ran.exit_code, cli::kExitOk) << ran.err;
  EXPECT_THAT(ran.err, IsEmpty());  // no progress line: this is no terminal
  const auto lines = lines_of(ran.out);
  ASSERT_EQ(lines.size(), 16u) << ran.out;
  EXPECT_THAT(lines[0], MatchesRegex("# nearlight [^ ]+ [^ ]+: all_reduce, backend host \\(shm\\), 2 ranks"));
  EXPECT_EQ(lines[1], "# mode eager, chain 10, samples 20 in 2 turns, warmup 5, check 1");
  EXPECT_THAT(lines[2], StartsWith("#  Rank  0 on "));
  EXPECT_THAT(lines[3], StartsWith("#  Rank  1 on "));
  EXPECT_EQ(shape_of(lines[4]), "# speed of light 9 us = round trip 9 + one way 9; store 9 GB/s");
  EXPECT_EQ(lines[6], "# nearlight");
  EXPECT_EQ(lines[8],
            "#                                                              out-of-place                     "
            "  in-place          ");
  EXPECT_EQ(lines[9],
            "#       size         count      type   redop    root     time   algbw   busbw  #wrong     time  "
            " algbw   busbw  #wrong");
  EXPECT_EQ(lines[10],
            "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)             (us)  "
            "(GB/s)  (GB/s)        ");
  EXPECT_THAT(lines[11], StartsWith("           8             2     float     sum      -1 "));
  EXPECT_THAT(lines[12], StartsWith("          32             8     float     sum      -1 "));
  EXPECT_THAT(lines[11], MatchesRegex("[^#]* 0 [^#]* 0"));
  EXPECT_EQ(lines[12].size(), lines[9].size());
  EXPECT_EQ(lines[14], "# Out of bounds values : 0 OK");
  EXPECT_EQ(shape_of(lines[15]), "# Avg bus bandwidth : 9");
}

TEST(Bench, EveryTypeOperatorAndNumberOfRanks) {
  for (const std::string line :
       {"--ranks 1 -d float -b 4 -e 260 -i 128", "--ranks 3 -d bfloat16 -b 4 -e 260 -i 128",
        "--ranks 5 -d int32 -o max -b 4 -e 260 -i 128", "-g 2 -t 2 -d bf16 -o max -b 4 -e 260 -i 128",
        "--ranks 2 -d fp8_e4m3 -o mulsum -b 4 -e 260 -i 128", "--ranks 3 -d double -o avg -b 4 -e 260 -i 128",
        "--ranks 1 -d half -o mulsum -b 4 -e 260 -i 128", "--ranks 2 -d uint8 -o prod -b 4 -e 260 -i 128",
        "--ranks 3 -d int64 -o min -b 4 -e 260 -i 128",
        "--ranks 2 --protocol simple -d i32 -b 4 -e 260 -i 128", "--ranks 2 --protocol ll -b 64K -e 64K"}) {
    const Ran ran = run_program("bench all_reduce --backend host -n 4 --rounds 2 -m 1 " + line);
    EXPECT_EQ(ran.exit_code, cli::kExitOk) << line << "\n" << ran.err;
    EXPECT_THAT(ran.out, HasSubstr("# Out of bounds values : 0 OK")) << line;
  }
}

TEST(Bench, EveryCollective) {
  for (const std::string name : {"all_gather", "reduce_scatter", "broadcast", "reduce", "all_to_all"}) {
    const std::string path = temporary_path("bench_" + name + ".json");
    const Ran ran =
        run_program("bench " + name +
                    " --backend host --ranks 3 -d bf16 -b 1 -e 4K -f 8 -n 20 --rounds 2 --json " + path);
    EXPECT_EQ(ran.exit_code, cli::kExitOk) << name << "\n" << ran.err;
    EXPECT_THAT(ran.out, HasSubstr("# Out of bounds values : 0 OK")) << name;
    EXPECT_THAT(ran.out, HasSubstr(": " + name + ", backend host")) << name;
    const auto file = cli::read_results(path);
    ASSERT_TRUE(file.ok()) << file.status().to_string();
    ASSERT_FALSE(file->rows.empty());
    EXPECT_THAT(cli::find_faults(*file), IsEmpty());
    EXPECT_EQ(file->rows[0].collective, name);
    const bool reduces = name.find("reduce") == 0;
    EXPECT_EQ(file->rows[0].op, reduces ? "sum" : "none");
  }
}

TEST(Bench, PercentilesWithoutEnoughSamplesHaveADash) {
  const Ran ran =
      run_program("bench all_reduce --backend host --ranks 2 -b 64 -e 64 -n 50 --percentiles --in-place 0");
  ASSERT_EQ(ran.exit_code, cli::kExitOk) << ran.err;
  const auto lines = lines_of(ran.out);
  EXPECT_EQ(shape_of(lines.back()), " 9 nearlight 9 9 9 9 - 9 9 9 9 9 9");  // CPU time and skew last
  EXPECT_THAT(ran.out, Not(HasSubstr("in-place")));
}

TEST(Bench, ResultFileHasNoFaults) {
  const std::string path = temporary_path("bench.json");
  const Ran ran =
      run_program("bench all_reduce --backend host --ranks 2 -b 8 -e 32 -n 20 --json '" + path + "'");
  ASSERT_EQ(ran.exit_code, cli::kExitOk) << ran.err;
  auto file = cli::read_results(path);
  unlink(path.c_str());
  ASSERT_TRUE(file.ok()) << file.status().to_string();
  EXPECT_THAT(cli::find_faults(*file), IsEmpty());
  ASSERT_EQ(file->rows.size(), 3u);
  for (const cli::ResultRow& row : file->rows) {
    EXPECT_EQ(row.impl, "nearlight");
    EXPECT_EQ(row.chain, 10);
    EXPECT_EQ(row.samples, 20u);
    EXPECT_EQ(row.wrong, 0u);
    EXPECT_EQ(row.mode, cli::Mode::eager);
    EXPECT_EQ(row.forced, "");
    EXPECT_EQ(row.scratch, 0u);
    EXPECT_GT(row.cpu_us.value_or(0), 0);
  }
  EXPECT_THAT(file->command, StartsWith("nearlight bench all_reduce --backend host --ranks 2 -b 8"));
}

std::vector<cli::ResultRow> rows_of_run(const std::string& arguments,
                                        const std::string& collective = "all_reduce") {
  const std::string path = temporary_path("rows.json");
  const Ran ran =
      run_program("bench " + collective + " --backend host -n 20 " + arguments + " --json '" + path + "'");
  EXPECT_EQ(ran.exit_code, cli::kExitOk) << ran.err;
  auto file = cli::read_results(path);
  unlink(path.c_str());
  EXPECT_TRUE(file.ok()) << file.status().to_string();
  if (!file.ok()) return {};
  EXPECT_THAT(cli::find_faults(*file), IsEmpty());
  return file->rows;
}

TEST(Bench, ARowTellsWhatWasForced) {
  for (const auto& row : rows_of_run("--ranks 2 -b 8 -e 8 --protocol simple --algorithm one_shot")) {
    EXPECT_EQ(row.algorithm, "one_shot");
    EXPECT_EQ(row.protocol, "simple");
    EXPECT_EQ(row.grid, 1);
    EXPECT_EQ(row.forced, "algorithm=one_shot,protocol=simple");
  }
  for (const auto& row : rows_of_run("--ranks 1 -b 8 -e 8 --protocol simple")) {
    EXPECT_EQ(row.algorithm, "copy");
    EXPECT_EQ(row.forced, "");
  }
}

TEST(Bench, WhatCannotBeForcedIsNamed) {
  const Ran ran = run_program("bench all_reduce --backend host -d int32 --protocol sentinel -n 4 -b 8 -e 8");
  EXPECT_EQ(ran.exit_code, cli::kExitUsage);
  EXPECT_THAT(ran.err, HasSubstr("protocol: sentinel"));
  const Ran several =
      run_program("bench all_reduce --protocol ll,simple -n 4 -b 8 -e 8", 60, "CUDA_VISIBLE_DEVICES=");
  EXPECT_EQ(several.exit_code, cli::kExitUnfit);
  EXPECT_THAT(several.err, HasSubstr("--protocol"));
}

TEST(Bench, RunsWithEachScratch) {
  const auto rows = rows_of_run("--ranks 2 -b 8 -e 4K -f 512 --scratch 512,16K");
  ASSERT_EQ(rows.size(), 4u);
  EXPECT_EQ(rows[0].scratch, 512u);
  EXPECT_EQ(rows[1].scratch, 512u);
  EXPECT_EQ(rows[1].bytes, 4096u);
  EXPECT_EQ(rows[2].scratch, 16384u);
  const Ran ran = run_program(
      "bench all_reduce --backend host -n 4 -b 8 -e 8 --scratch 512,16K --in-place 0 --percentiles");
  EXPECT_THAT(ran.out, HasSubstr("# nearlight, scratch 512\n"));
  EXPECT_THAT(ran.out, HasSubstr("# nearlight, scratch 16384\n"));
  EXPECT_THAT(lines_of(ran.out).back(), testing::EndsWith("      16384"));
}

TEST(Bench, TwoJobsAtATime) {
  for (const auto& row : rows_of_run("--ranks 2 -b 8 -e 4K -f 512 --jobs 2")) {
    EXPECT_EQ(row.jobs, 2);
    EXPECT_EQ(row.wrong, 0u);
  }
  for (const auto& row : rows_of_run("--ranks 2 -b 8 -e 8")) EXPECT_EQ(row.jobs, 1);
}

TEST(Bench, WhatAPartOfTheLibraryCosts) {
  for (const auto& [part, impl] :
       {std::pair{"trace", "nearlight_traced"}, std::pair{"deadline", "nearlight_unbounded"}}) {
    const std::string arguments = std::string("--ranks 2 -b 8 -e 1K -f 128 -m 2 --rounds 4 --paired ") + part;
    const Ran ran = run_program("bench all_reduce --backend host -n 20 " + arguments);
    ASSERT_EQ(ran.exit_code, cli::kExitOk) << ran.err;
    const auto lines = lines_of(ran.out);
    ASSERT_GE(lines.size(), 5u);
    EXPECT_EQ(lines[lines.size() - 5], std::string("# cost of ") + part +
                                           ": median over 4 turns of with / without - 1, and its quartiles");
    EXPECT_THAT(shape_of(lines.back()), MatchesRegex(" 9 9 9 [+-]9 [+-]9 [+-]9")) << lines.back();
    const auto rows = rows_of_run(arguments);
    ASSERT_EQ(rows.size(), 4u);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      EXPECT_EQ(rows[i].impl, i % 2 == 0 ? "nearlight" : impl);
      EXPECT_EQ(rows[i].cost.has_value(), i % 2 == 1);
      EXPECT_EQ(rows[i].wrong, 0u);
      EXPECT_EQ(rows[i].forced, "");
    }
  }
}

TEST(Bench, WhatTracingOtherCollectivesCosts) {
  for (const char* const collective : {"all_gather", "broadcast", "all_to_all", "send_recv"}) {
    const auto rows =
        rows_of_run("--ranks 2 -b 1K -e 1K --rounds 4 --in-place 0 -d half --paired trace", collective);
    ASSERT_EQ(rows.size(), 2u) << collective;
    EXPECT_EQ(rows[1].impl, "nearlight_traced");
    EXPECT_TRUE(rows[1].cost.has_value());
    for (const auto& row : rows) EXPECT_EQ(row.wrong, 0u) << collective;
  }
}

TEST(Bench, SkewIsToldBesideTheTimes) {
  std::vector<cli::ResultRow> rows;
  // Where the ranks have no processor each, the first one may come later still.
  for (int again = 0; again < 5 && (rows.empty() || rows[0].skew_us.value_or(0) < 900); ++again) {
    rows = rows_of_run("--ranks 2 -b 8 -e 8 --skew 1000");
    ASSERT_EQ(rows.size(), 1u);
  }
  EXPECT_GE(rows[0].skew_us.value_or(0), 900);
  EXPECT_LT(rows[0].min_us, 500);
  const Ran ran = run_program("bench all_reduce --backend host --ranks 2 -b 8 -e 8 -n 20 --skew 50");
  EXPECT_THAT(ran.out, HasSubstr("# rank 1 comes 50 us late to every start (--skew)\n"));
}

TEST(Bench, PeersThatNeedAGpuSaySo) {
  for (const std::string peer : {"nvshmem", "torch_symm_mem", "nccl_sym"}) {
    const Ran ran = run_program("bench all_reduce --against " + peer, 60, "CUDA_VISIBLE_DEVICES=");
    EXPECT_EQ(ran.exit_code, cli::kExitUnfit) << peer;
    EXPECT_THAT(ran.err, HasSubstr("--against")) << peer;
    EXPECT_THAT(ran.err, HasSubstr("GPU")) << peer;
  }
}

TEST(Bench, AResultFileThatCannotBeWrittenIsAnError) {
  const Ran ran =
      run_program("bench all_reduce --backend host --ranks 2 -b 8 -e 8 -n 4 --json /nonexistent/x.json");
  EXPECT_NE(ran.exit_code, cli::kExitOk);
  EXPECT_THAT(ran.err, HasSubstr("--json /nonexistent/x.json"));
}

TEST(Bench, WithoutAGpuTheBestIsTheHostAndThatIsSaid) {
  const Ran ran = run_program("bench all_reduce -b 8 -e 8 -n 4", 120, "CUDA_VISIBLE_DEVICES=");
  EXPECT_EQ(ran.exit_code, cli::kExitOk) << ran.err;
  EXPECT_THAT(ran.err, HasSubstr("no GPU"));
  EXPECT_THAT(ran.out, HasSubstr("backend host"));
}

#if NEARLIGHT_HAS_MPI
TEST(Bench, OpenMpiInTurnsInOneProgram) {
  const std::string path = temporary_path("mpi.json");
  const Ran ran = run_program(
      "bench all_reduce --backend host --ranks 2 -b 8 -e 64 -n 20 --against openmpi --json '" + path + "'");
  ASSERT_EQ(ran.exit_code, cli::kExitOk) << ran.err << ran.out;
  EXPECT_THAT(ran.out, HasSubstr("# nearlight\n"));
  EXPECT_THAT(ran.out, HasSubstr("# openmpi\n"));
  EXPECT_THAT(ran.out, Not(HasSubstr("FAILED")));
  auto file = cli::read_results(path);
  unlink(path.c_str());
  ASSERT_TRUE(file.ok()) << file.status().to_string();
  EXPECT_THAT(cli::find_faults(*file), IsEmpty());
  ASSERT_EQ(file->rows.size(), 8u);
  for (std::size_t i = 0; i < file->rows.size(); ++i) {
    EXPECT_EQ(file->rows[i].impl, i % 2 == 0 ? "nearlight" : "openmpi");
    EXPECT_EQ(file->rows[i].bytes, std::size_t{8} << i / 2);
    EXPECT_EQ(file->rows[i].wrong, 0u);
  }
}

TEST(Bench, OpenMpiWithMoreRanksThanProcessorsAndIntegers) {
  const Ran ran = run_program(
      "bench all_reduce --backend host --ranks 3 -b 8 -e 8 -n 4 -m 1 -d int64 -o prod --against openmpi");
  EXPECT_EQ(ran.exit_code, cli::kExitOk) << ran.err << ran.out;
  EXPECT_THAT(ran.out, Not(HasSubstr("FAILED")));
}
#else
TEST(Bench, WithoutMpiThePeerIsNotThere) {
  const Ran ran = run_program("bench all_reduce --backend host --ranks 2 --against openmpi");
  EXPECT_EQ(ran.exit_code, cli::kExitUnfit);
  EXPECT_THAT(ran.err, HasSubstr("without MPI"));
}
#endif

}  // namespace
}  // namespace nearlight::test
