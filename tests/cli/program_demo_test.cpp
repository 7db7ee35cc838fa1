#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "cli/exit_code.hpp"
#include "cli/results.hpp"
#include "tests/cli/run_program.hpp"

namespace nearlight::test {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

constexpr const char* kNoGpu = "CUDA_VISIBLE_DEVICES=";

void check_demo(int ranks) {
  const std::string path = temporary_path("demo.json");
  const Ran ran = run_program("demo --backend host --ranks " + std::to_string(ranks) +
                              " --workload llama-3.1-8b --json '" + path + "'");
  ASSERT_EQ(ran.exit_code, cli::kExitOk) << ran.err << ran.out;
  EXPECT_THAT(ran.err, IsEmpty());
  EXPECT_THAT(ran.out, HasSubstr("llama-3.1-8b: the all-reduces of one decode step, bf16 sum over " +
                                 std::to_string(ranks)));
  EXPECT_THAT(ran.out, HasSubstr("CPU processes over shared memory"));
  EXPECT_THAT(ran.out, HasSubstr("wrong results: 0 (every size checked"));
  auto file = cli::read_results(path);
  unlink(path.c_str());
  ASSERT_TRUE(file.ok()) << file.status().to_string();
  EXPECT_THAT(cli::find_faults(*file), IsEmpty());
  ASSERT_FALSE(file->rows.empty());
  for (const cli::ResultRow& row : file->rows) {
    EXPECT_EQ(row.ranks, ranks);
    EXPECT_EQ(row.wrong, 0u);
    EXPECT_GE(row.samples, 10u);
  }
}

TEST(Demo, TwoRanks) { check_demo(2); }
TEST(Demo, FourRanks) { check_demo(4); }

TEST(Demo, WithoutAGpuFourProcessesAndThatIsSaid) {
  // A workload of one small size, so that it is quick.
  const std::string path = temporary_path("workload.json");
  std::ofstream(path)
      << R"({"name": "toy", "source": "made up", "hidden_size": 64, "layers": 1, "dtype": "bf16",
    "all_reduces_per_step": 2, "tp": [2, 4], "batch": [1]})";
  const Ran ran = run_program("demo --workload '" + path + "'", 120, kNoGpu);
  unlink(path.c_str());
  EXPECT_EQ(ran.exit_code, cli::kExitOk) << ran.err;
  EXPECT_THAT(ran.err, HasSubstr("no GPU"));
  EXPECT_THAT(ran.out, HasSubstr("4 CPU processes"));
  EXPECT_THAT(ran.out, HasSubstr("wrong results: 0"));
}

}  // namespace
}  // namespace nearlight::test
