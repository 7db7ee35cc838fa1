// `nearlight run`: what it sets, passes on and prints.
#include <gtest/gtest.h>

#include <csignal>
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
  EXPECT_EQ(run({"--stats", "--", "sh", "-c", "exit 7"}).code, 7);
  EXPECT_EQ(run({"--", "sh", "-c", "kill -9 $$"}).code, -9) << "it has become the program";
  EXPECT_EQ(run({"--stats", "--", "sh", "-c", "kill -9 $$"}).code, 128 + 9);
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

// The others' are printed all the same, and the program's exit code is the one that is given.
TEST(Run, StatsThatCannotBeReadAreNamed) {
  const Ended ended =
      run({"--stats", "--", "sh", "-c",
           kProgram + " taken; echo nothing > $NEARLIGHT_DROPIN_STATS/1; : > $NEARLIGHT_DROPIN_STATS/2"});
  EXPECT_EQ(ended.code, 0) << ended.output;
  EXPECT_TRUE(has(ended.output, "): 4 calls taken, 0 forwarded")) << ended.output;
  EXPECT_TRUE(has(ended.output, "/1 holds no counts of this version's drop-in")) << ended.output;
  EXPECT_TRUE(has(ended.output, "/2 holds no counts of this version's drop-in")) << ended.output;
  const Ended gone = run({"--stats", "--", "sh", "-c", "rm -r $NEARLIGHT_DROPIN_STATS; exit 4"});
  EXPECT_EQ(gone.code, 4) << gone.output;
  EXPECT_TRUE(has(gone.output, "listing ")) << gone.output;
}

// What somebody sends to the process that was started reaches the program, and its status comes back.
TEST(Run, SignalsReachTheProgram) {
  const struct {
    int signal;
    const char* name;
  } signals[] = {{SIGTERM, "TERM"}, {SIGHUP, "HUP"}, {SIGINT, "INT"}};
  for (const bool stats : {false, true}) {
    for (const auto& [signal, name] : signals) {
      std::vector<std::string> words = {kNearlight, "run"};
      if (stats) words.push_back("--stats");
      words.insert(words.end(), {"--", "python3", "-c",
                                 "import os, signal, sys, time\n"
                                 "def caught(number, frame):\n"
                                 "  print('caught', number, flush=True); os._exit(5)\n"
                                 "signal.signal(signal.SIG" +
                                     std::string(name) +
                                     ", caught)\n"
                                     "print('ready', flush=True)\n"
                                     // A signal just before a long sleep would be seen behind it.
                                     "while True: time.sleep(0.02)"});
      Spawned started(words, {});
      ASSERT_TRUE(started.wait_for_output("ready")) << started.output();
      started.kill(signal);
      EXPECT_EQ(started.wait(std::chrono::seconds(30)), 5) << started.output();
      EXPECT_TRUE(has(started.output(), "caught " + std::to_string(signal))) << started.output();
      EXPECT_EQ(has(started.output(), "no process called NCCL"), stats) << started.output();
    }
  }
  // A program that ends by it, as a shell tells it.
  Spawned started({kNearlight, "run", "--stats", "--", "sh", "-c", "echo ready; exec sleep 60"}, {});
  ASSERT_TRUE(started.wait_for_output("ready")) << started.output();
  started.kill(SIGTERM);
  EXPECT_EQ(started.wait(std::chrono::seconds(30)), 128 + SIGTERM) << started.output();
  EXPECT_TRUE(has(started.output(), "no process called NCCL")) << started.output();
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
