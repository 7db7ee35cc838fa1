// `nearlight run`: what it sets, passes on and prints.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/support/spawned.hpp"

namespace nearlight::test {
namespace {

const std::string kDropIn = DROP_IN;
const std::string kProgram = PROGRAM;
const std::string kFirst = FIRST_NCCL;
const std::string kSecond = SECOND_NCCL;
const std::string kDlopen = DLOPEN_PROGRAM;
const std::string kNearlight = NEARLIGHT;

struct Ended {
  int code;
  std::string output;
};

Ended run(const std::vector<std::string>& words, const std::vector<std::string>& environment = {}) {
  std::vector<std::string> all = {kNearlight, "run"};
  all.insert(all.end(), words.begin(), words.end());
  Spawned program(all, environment);
  const int code = program.wait(std::chrono::seconds(60));
  return {code, program.output()};
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST(Run, LinkedProgram) {
  const Ended ended = run({"--", kProgram, "taken"});
  EXPECT_EQ(ended.code, 0) << ended.output;
  EXPECT_EQ(ended.output, "") << "nothing is printed unless asked";
}

TEST(Run, ProgramThatDlopens) {
  const Ended ended = run({"--", kDlopen, kFirst});
  EXPECT_EQ(ended.code, 0) << ended.output;
  EXPECT_TRUE(has(ended.output, "nearlight AllReduce r0")) << ended.output;
}

TEST(Run, WithoutAuditOnlyLinkedPrograms) {
  const Ended ended = run({"--no-audit", "--", kDlopen, kFirst});
  EXPECT_EQ(ended.code, 0) << ended.output;
  EXPECT_TRUE(has(ended.output, "nccl AllReduce r0")) << ended.output;
  EXPECT_EQ(run({"--no-audit", "--", kProgram, "taken"}).code, 0);
}

TEST(Run, PathOfNccl) {
  const Ended ended = run({"--nccl", kSecond, "--", kProgram, "newer_function"});
  EXPECT_EQ(ended.code, 0) << ended.output;
  EXPECT_TRUE(has(ended.output, "all calls go to " + kSecond)) << ended.output;
  const Ended none = run({"--nccl", "/nowhere/libnccl.so.2", "--", kProgram, "taken"});
  EXPECT_EQ(none.code, 2) << none.output;
  EXPECT_TRUE(has(none.output, "/nowhere/libnccl.so.2")) << none.output;
}

TEST(Run, ExitCodeIsThePrograms) {
  EXPECT_EQ(run({"--", "sh", "-c", "exit 7"}).code, 7);
  EXPECT_EQ(run({"--", "sh", "-c", "kill -9 $$"}).code, 128 + 9);
  const Ended none = run({"--", "/nowhere/program"});
  EXPECT_EQ(none.code, 127);
  EXPECT_TRUE(has(none.output, "/nowhere/program: cannot be run")) << none.output;
  EXPECT_EQ(run({}).code, 2);
  EXPECT_EQ(run({"--"}).code, 2);
  EXPECT_EQ(run({"--what", "--", "true"}).code, 2);
}

// Two processes, one of which is killed; together at the end.
TEST(Run, StatsOfAllProcesses) {
  const Ended ended =
      run({"--stats", "--", "sh", "-c",
           kProgram + " taken; " + kProgram + " groups; " + kProgram + " never_destroyed; exit 3"});
  EXPECT_EQ(ended.code, 3) << ended.output;
  EXPECT_TRUE(has(ended.output,
                  "nearlight_dropin_program, NCCL 22809 in " + kFirst + "): 4 calls taken, 0 forwarded"))
      << ended.output;
  EXPECT_TRUE(has(ended.output, "): 4 calls taken, 2 forwarded")) << ended.output;
  EXPECT_TRUE(has(ended.output, "): 2 calls taken, 0 forwarded")) << ended.output;
  EXPECT_TRUE(has(ended.output, "AllReduce      to 1 KiB   taken               10  small floats"))
      << ended.output;
  EXPECT_TRUE(
      has(ended.output, "AllReduce      to 128 KiB forwarded            2  the test takes no large messages"))
      << ended.output;
  EXPECT_TRUE(has(ended.output, "communicator              taken                6  attached by the test"))
      << ended.output;
}

TEST(Run, StatsOfAProgramWithoutNccl) {
  const Ended ended = run({"--stats", "--", "true"});
  EXPECT_EQ(ended.code, 0);
  EXPECT_TRUE(has(ended.output, "no process called NCCL")) << ended.output;
}

TEST(Run, WhatWasPreloadedStays) {
  const Ended ended = run({"--", "sh", "-c", "echo $LD_PRELOAD $LD_AUDIT"}, {"LD_PRELOAD=" + kFirst});
  EXPECT_TRUE(has(ended.output, kDropIn + ":" + kFirst + " ")) << ended.output;
  EXPECT_TRUE(has(ended.output, "libnearlight_nccl_audit.so")) << ended.output;
}

}  // namespace
}  // namespace nearlight::test
