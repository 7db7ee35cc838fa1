// `nearlight compare`, `bench --compare` and `report` as a user runs them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "cli/exit_code.hpp"
#include "cli/results.hpp"
#include "cli/text_file.hpp"
#include "tests/cli/run_program.hpp"
#include "tests/support/sample_results.hpp"

namespace nearlight::test {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

// A file as of an earlier run whose times were those of this machine times `factor`.
std::string file_with_times(const std::string& of, double factor) {
  auto file = cli::read_results(of);
  EXPECT_TRUE(file.ok());
  for (cli::ResultRow& row : file->rows) {
    cli::set_times(row,
                   {row.samples, row.min_us * factor, row.p50_us * factor, row.p50_us * factor,
                    row.p50_us * factor, std::nullopt, row.max_us * factor + row.p50_us * factor, 0},
                   file->floors);
  }
  const std::string path = temporary_path("other.json");
  EXPECT_TRUE(cli::write_results(*file, path).ok());
  return path;
}

TEST(Compare, TheExitStatusSaysWhetherSomethingBecameSlower) {
  const std::string before = temporary_path("before.json");
  const Ran ran =
      run_program("bench all_reduce --backend host --ranks 2 -b 8 -e 8 -n 100 --json '" + before + "'");
  ASSERT_EQ(ran.exit_code, cli::kExitOk) << ran.err;
  const Ran same = run_program("compare '" + before + "' '" + before + "'");
  EXPECT_EQ(same.exit_code, cli::kExitOk) << same.err;
  EXPECT_THAT(same.out, HasSubstr("# Slower: 0, faster: 0, same: 1,"));
  // So far apart that this machine's noise does not matter.
  const std::string other = file_with_times(before, 1000);
  const Ran slower = run_program("compare '" + before + "' '" + other + "'");
  EXPECT_EQ(slower.exit_code, cli::kExitSlower) << slower.err;
  EXPECT_THAT(slower.out, HasSubstr("  slower\n"));
  const std::string bench = "bench all_reduce --backend host --ranks 2 -b 8 -e 8 -n 100 --compare '";
  const Ran faster = run_program(bench + other + "'");
  EXPECT_EQ(faster.exit_code, cli::kExitOk) << faster.err;
  EXPECT_THAT(faster.out, HasSubstr("  faster\n"));
  unlink(other.c_str());
  const std::string quick = file_with_times(before, 0.001);
  const Ran measured = run_program(bench + quick + "' --json '" + quick + "'");
  EXPECT_EQ(measured.exit_code, cli::kExitSlower) << measured.out << measured.err;
  unlink(quick.c_str());
  unlink(before.c_str());
}

TEST(Compare, ABadFileIsNamedBeforeAnythingIsMeasured) {
  const std::string path = temporary_path("bad.json");
  std::ofstream(path) << "{\"schema\": 1}";
  for (const std::string& command : {"compare '" + path + "' '" + path + "'",
                                     "bench all_reduce --backend host --compare '" + path + "'"}) {
    const Ran ran = run_program(command);
    EXPECT_EQ(ran.exit_code, cli::kExitUsage);
    EXPECT_THAT(ran.err, HasSubstr("bad.json: date is missing"));
    EXPECT_THAT(ran.out, IsEmpty());
  }
  unlink(path.c_str());
  const Ran none = run_program("compare /nonexistent/a.json /nonexistent/a.json");
  EXPECT_EQ(none.exit_code, cli::kExitUsage);
  EXPECT_THAT(none.err, HasSubstr("/nonexistent/a.json"));
}

TEST(Report, WritesOnePageAndKeepsTheResults) {
  const std::string results = temporary_path("report.json"), page = temporary_path("report.html");
  ASSERT_TRUE(cli::write_results(sample_results(), results).ok());
  const Ran ran = run_program("report '" + results + "' '" + results + "' -o '" + page + "'");
  EXPECT_EQ(ran.exit_code, cli::kExitOk) << ran.err;
  const auto text = cli::read_text_file(page);
  ASSERT_TRUE(text.ok());
  EXPECT_THAT(text.value(), HasSubstr("report.json (2)</h2>"));
  unlink(page.c_str());

  const Ran itself = run_program("report '" + results + "' -o '" + results + "'");
  EXPECT_EQ(itself.exit_code, cli::kExitUsage);
  EXPECT_THAT(itself.err, HasSubstr("-o: "));
  EXPECT_TRUE(cli::read_results(results).ok());
  const Ran nowhere = run_program("report '" + results + "' -o /nonexistent/page.html");
  EXPECT_EQ(nowhere.exit_code, cli::kExitWrong);
  EXPECT_THAT(nowhere.err, HasSubstr("/nonexistent/page.html"));
  std::ofstream(results) << "{\"schema\": 2}";
  const Ran bad = run_program("report '" + results + "' -o '" + page + "'");
  EXPECT_EQ(bad.exit_code, cli::kExitUsage);
  EXPECT_THAT(bad.err, HasSubstr("report.json: "));
  EXPECT_NE(access(page.c_str(), F_OK), 0);
  unlink(results.c_str());
}

}  // namespace
}  // namespace nearlight::test
