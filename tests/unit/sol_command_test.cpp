#include "cli/sol_command.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "cli/exit_code.hpp"
#include "cli/heap_pair.hpp"
#include "cli/results.hpp"
#include "cli/sol_heaps.hpp"

namespace nearlight::cli {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::internal::CaptureStderr;
using testing::internal::CaptureStdout;
using testing::internal::GetCapturedStderr;
using testing::internal::GetCapturedStdout;

probe::SolReport sample_report() {
  probe::SolReport report;
  report.backend = "gpu";
  report.lines = 64;
  report.l2rtt = {{"GPU 0 SM 66", 0.127, 0.136, 0.158, 64}};
  report.one_way = {{"GPU 0 SM 66 -> GPU 1 SM 66", 0.654, 0.673, 0.69, 64}};
  report.sol = {{"GPU 0 SM 66 -> GPU 1 SM 66", 0.79, 0.81, 0.84, 64}};
  report.remote_load = {{"GPU 0 SM 66 -> GPU 1 SM 66", 0.85, 0.853, 0.86, 64}};
  report.l2rtt_us = 0.136;
  report.one_way_us = 0.673;
  report.sol_us = 0.81;
  report.remote_load_us = 0.853;
  report.store_gbs = 340;
  report.arrival_relaxed_us = 0.71;
  report.arrival_acquire_us = 0.73;
  report.arrival_fence_us = 1.93;
  report.launch_floor_us = 0.53;
  report.launch_floor_pdl_us = 0.44;
  report.eager_floor_us = 6.5;
  return report;
}

TEST(SolTable, ShowsEveryQuantityWithItsUnit) {
  const std::string table =
      sol_table({"NVIDIA H200", 2, "NVLink", "580", "13.0", "none", "cpu"}, sample_report());
  for (const char* text :
       {"NVIDIA H200 x 2, link NVLink", "L2 round trip: ", "one way: ", "remote load: ", "speed of light: ",
        "GPU 0 SM 66 -> GPU 1 SM 66", "0.6540", "0.6730", "0.6900", "340 GB/s", "0.53 us", "0.44 us",
        "6.5 us", "0.81 us", "0.71 us", "0.73 us", "1.93 us", "every poll acquires"}) {
    EXPECT_THAT(table, HasSubstr(text));
  }
}

TEST(SolTable, LeavesOutWhatACpuDoesNotHave) {
  probe::SolReport report = sample_report();
  report.backend = "cpu";
  report.remote_load.clear();
  report.remote_load_us.reset();
  report.arrival_relaxed_us.reset();
  report.arrival_acquire_us.reset();
  report.arrival_fence_us.reset();
  report.launch_floor_us.reset();
  report.launch_floor_pdl_us.reset();
  report.eager_floor_us.reset();
  const std::string table = sol_table({"none", 0, "shm", "none", "none", "none", "cpu"}, report);
  for (const char* text : {"launch", "remote load", "GPU      ", "polls"})
    EXPECT_THAT(table, Not(HasSubstr(text)));
  EXPECT_THAT(table, HasSubstr("local load: "));
}

TEST(SolCommand, MeasuresTheCpuAndWritesAResultFile) {
  std::string pattern = (std::filesystem::temp_directory_path() / "nearlight-sol-XXXXXX").string();
  ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
  const std::string path = pattern + "/sol.json";
  CaptureStdout();
  const int status = sol_command({"--device", "cpu", "--lines", "4", "--json", path});
  const std::string printed = GetCapturedStdout();
  EXPECT_EQ(status, kExitOk);
  EXPECT_THAT(printed, HasSubstr("speed of light"));
  const auto file = read_results(path);
  ASSERT_TRUE(file.ok()) << file.status().to_string();
  EXPECT_THAT(find_faults(*file), IsEmpty());
  EXPECT_EQ(file->machine.link, "shm");
  EXPECT_EQ(file->command, "nearlight sol --device cpu --lines 4 --json sol.json");  // without the folder
  std::filesystem::remove_all(pattern);
}

TEST(SolCommand, RefusesBadArguments) {
  struct Bad {
    std::vector<std::string> arguments;
    const char* expected;
  };
  const Bad kBad[] = {
      {{"--device", "x"}, "--device"},  {{"--device", "1,"}, "--device"}, {{"--lines", "0"}, "--lines"},
      {{"--lines", "many"}, "--lines"}, {{"--lines", "5000"}, "--lines"}, {{"--speed"}, "--speed"},
      {{"surprise"}, "surprise"},
  };
  for (const Bad& bad : kBad) {
    CaptureStderr();
    CaptureStdout();
    const int status = sol_command(bad.arguments);
    EXPECT_THAT(GetCapturedStdout(), IsEmpty());
    EXPECT_THAT(GetCapturedStderr(), HasSubstr(bad.expected));
    EXPECT_EQ(status, kExitUsage);
  }
}

TEST(SolCommand, HelpIsNoError) {
  CaptureStdout();
  EXPECT_EQ(sol_command({"--help"}), kExitOk);
  const std::string help = GetCapturedStdout();
  for (const char* option : {"--device", "--json", "--lines"}) EXPECT_THAT(help, HasSubstr(option));
}

TEST(HeapPair, AFailureOfEitherRankIsReturned) {
  for (const int failing : {0, 1}) {
    const auto pair =
        make_heap_pair([failing](Exchange& exchange, Deadline) -> Result<std::unique_ptr<memory::Heap>> {
          return failure(Code::unsupported, exchange.rank() == failing ? "this one" : "and the other");
        });
    EXPECT_EQ(pair.status().code(), Code::unsupported);
  }
}

}  // namespace
}  // namespace nearlight::cli
