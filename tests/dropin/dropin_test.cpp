// What the drop-in takes, passes on and answers: cases of a program that is linked to NCCL, each in a process
// of its own with the drop-in preloaded. See cases.cpp.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "tally/tally_file.hpp"
#include "tests/support/spawned.hpp"

namespace nearlight::test {
namespace {

const std::string kDropIn = DROP_IN;
const std::string kProgram = PROGRAM;
const std::string kFirst = FIRST_NCCL;
const std::string kPreload = "LD_PRELOAD=" + kDropIn;

struct Ended {
  int code;
  std::string output;
};

Ended run_case(const std::string& name, std::vector<std::string> environment = {}) {
  environment.push_back(kPreload);
  Spawned program({kProgram, name}, environment);
  const int code = program.wait(std::chrono::seconds(60));
  return {code, program.output()};
}

void expect_good(const std::string& name, const std::vector<std::string>& environment = {}) {
  const Ended ended = run_case(name, environment);
  EXPECT_EQ(ended.code, 0) << ended.output;
}

// A folder for the counts of one test.
class Folder {
 public:
  Folder() {
    std::string path = (std::filesystem::temp_directory_path() / "nearlight-dropin-XXXXXX").string();
    EXPECT_NE(::mkdtemp(path.data()), nullptr);
    path_ = path;
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  std::string variable() const { return "NEARLIGHT_DROPIN_STATS=" + path_; }
  std::vector<tally::ProcessTally> read() const {
    auto read = tally::read_tallies(path_);
    EXPECT_TRUE(read.ok()) << read.status().to_string();
    if (!read.ok()) return {};
    EXPECT_TRUE(read->bad.empty()) << read->bad[0].to_string();
    return read->processes;
  }

 private:
  std::string path_;
};

std::uint64_t count_of(const std::vector<tally::ProcessTally>& tallies, const std::string& what,
                       const std::string& size, bool taken, const std::string& reason) {
  std::uint64_t count = 0;
  for (const auto& tally : tallies) {
    for (const auto& row : tally.rows) {
      if (row.what == what && row.size == size && row.taken == taken && row.reason == reason)
        count += row.count;
    }
  }
  return count;
}

TEST(DropIn, TakesWhatItCan) { expect_good("taken"); }
TEST(DropIn, PassesOnTheRest) { expect_good("forwarded"); }
TEST(DropIn, GroupsStartAtTheirOuterEnd) { expect_good("groups"); }
TEST(DropIn, SeveralCommunicatorsInAGroup) { expect_good("several_communicators"); }
TEST(DropIn, StreamsOfAGroupWaitForEachOther) { expect_good("group_with_streams"); }
TEST(DropIn, TakenAndForwardedFollowEachOther) { expect_good("taken_and_forwarded_on_two_streams"); }
TEST(DropIn, NonBlockingGroupIsEnqueuedBeforeItsEnd) { expect_good("non_blocking_group"); }
TEST(DropIn, WhoOnlyAsksForErrorsFreesNothing) { expect_good("asked_while_it_ends"); }
TEST(DropIn, AnAbortEndsTheFinalizeOfAnotherThread) { expect_good("aborted_while_it_is_finalized"); }
TEST(DropIn, AnAbortWaitsForCallsThatHaveBegun) {
  expect_good("aborted_as_finalizing_begins");
  expect_good("aborted_as_destroying_begins");
  expect_good("aborted_while_nccl_finalizes");
}
TEST(DropIn, AnAbortEndsTheDestroyOfAnotherThread) { expect_good("aborted_while_it_is_destroyed"); }
TEST(DropIn, ADestroyWaitsForCallsThatHaveBegun) {
  expect_good("destroyed_as_finalizing_begins");
  expect_good("destroyed_while_nccl_finalizes");
}
TEST(DropIn, ACompanionThatComesTooLateIsNobodys) {
  expect_good("aborted_before_the_companion_is_made", {"NCCL_COMM_BLOCKING=0", "FAKE_ATTACH=stuck"});
}
TEST(DropIn, WhatAGroupKeptGoesToNoOtherCommunicator) { expect_good("ended_within_a_group"); }
TEST(DropIn, SendsAndReceivesOfAGroupGoTogether) { expect_good("grouped_messages"); }
TEST(DropIn, SimulatedGroupStartsNothing) { expect_good("simulated_group"); }
TEST(DropIn, FullStopBeforeNccl) { expect_good("stops_before_nccl"); }
TEST(DropIn, FailuresInNcclsCodes) { expect_good("failures"); }
TEST(DropIn, SplitShrinkRevokeAbortDestroy) { expect_good("life"); }
TEST(DropIn, CompanionEndsBeforeItsCommunicator) { expect_good("order_of_ending"); }
TEST(DropIn, CommunicatorsOfAGroup) { expect_good("made_in_a_group"); }
TEST(DropIn, NonBlockingIsInProgressUntilAttached) {
  expect_good("non_blocking");
  expect_good("non_blocking", {"FAKE_ATTACH=slow"});
}
TEST(DropIn, NonBlockingThatIsAborted) { expect_good("non_blocking_that_is_aborted"); }
TEST(DropIn, NonBlockingByTheVariable) {
  expect_good("all_at_once_non_blocking", {"NCCL_COMM_BLOCKING=0"});
  expect_good("all_at_once_non_blocking", {"NCCL_COMM_BLOCKING=0", "FAKE_ATTACH=slow"});
}
TEST(DropIn, SplitFromANonBlocking) { expect_good("split_from_a_non_blocking", {"NCCL_COMM_BLOCKING=0"}); }
TEST(DropIn, SplitWithAConfiguration) { expect_good("split_with_a_configuration", {"NCCL_COMM_BLOCKING=0"}); }
TEST(DropIn, NonBlockingIsFinalizedBehindTheCall) {
  expect_good("finalized_behind", {"NCCL_COMM_BLOCKING=0"});
  expect_good("finalized_and_aborted", {"NCCL_COMM_BLOCKING=0"});
}
TEST(DropIn, OneRanksRefusalIsEverybodys) { expect_good("refused_by_configuration"); }
TEST(DropIn, BrokenCreationIsAnError) { expect_good("broken_creation", {"FAKE_ATTACH=broken"}); }
TEST(DropIn, ThreadsWithCommunicatorsOfTheirOwn) { expect_good("threads"); }
TEST(DropIn, NewerFunctionsReachNccl) { expect_good("newer_function"); }
TEST(DropIn, SwitchedOff) { expect_good("all_forwarded", {"NEARLIGHT_DROPIN=0"}); }
TEST(DropIn, SwitchWithoutMeaningIsToldAndOff) {
  const Ended ended = run_case("all_forwarded", {"NEARLIGHT_DROPIN=yes"});
  EXPECT_EQ(ended.code, 0) << ended.output;
  EXPECT_NE(ended.output.find("NEARLIGHT_DROPIN is \"yes\"; it takes 0 or 1"), std::string::npos)
      << ended.output;
}

TEST(DropIn, FunctionsWithoutMeaningAreToldAndOff) {
  const Ended ended = run_case("all_forwarded", {"NEARLIGHT_DROPIN_TAKES=all_reduce,fly"});
  EXPECT_EQ(ended.code, 0) << ended.output;
  EXPECT_NE(ended.output.find("NEARLIGHT_DROPIN_TAKES: there is no \"fly\""), std::string::npos)
      << ended.output;
}

// Where the GPUs do not reach each other, all goes to NCCL, and one reason says so: the one of the decision.
TEST(DropIn, RefusedAttachmentPassesAllOn) {
  const Folder folder;
  expect_good("all_forwarded", {"FAKE_ATTACH=refused", folder.variable()});
  const auto tallies = folder.read();
  const std::string why = "peer access is not supported between devices 0 and 1";
  EXPECT_EQ(count_of(tallies, "communicator", "", false, why), 2U);
  EXPECT_EQ(count_of(tallies, "AllReduce", "to 1 KiB", false, why), 2U);
  EXPECT_EQ(count_of(tallies, "AllReduce", "to 1 KiB", false, "one rank has nobody to talk to"), 1U);
}

TEST(DropIn, CountsByFunctionSizeAndReason) {
  const Folder folder;
  expect_good("forwarded", {folder.variable()});
  const auto tallies = folder.read();
  ASSERT_EQ(tallies.size(), 1U);
  EXPECT_EQ(tallies[0].program, "nearlight_dropin_program");
  EXPECT_NE(tallies[0].nccl.find(kFirst), std::string::npos) << tallies[0].nccl;
  EXPECT_EQ(count_of(tallies, "AllReduce", "to 128 KiB", false, "the test takes no large messages"), 2U);
  EXPECT_EQ(count_of(tallies, "AllReduce", "0", false, "no elements"), 2U);
  EXPECT_EQ(count_of(tallies, "AllReduce", "to 1 KiB", false, "an operator that the program has made"), 2U);
  EXPECT_EQ(count_of(tallies, "AllReduce", "to 1 KiB", false, "the test takes floats alone"), 2U);
  EXPECT_EQ(count_of(tallies, "AllReduce", "0", false, "a type that nearlight does not know"), 2U);
  EXPECT_EQ(count_of(tallies, "Broadcast", "to 1 KiB", false, "nearlight does not take this function"), 2U);
  EXPECT_EQ(
      count_of(tallies, "AllReduce", "to 1 KiB", false, "the communicator was not made through the drop-in"),
      1U);
  const std::string text = tally::tally_text(tallies);
  EXPECT_NE(text.find("0 calls taken, 13 forwarded"), std::string::npos) << text;
}

// Without destroying its communicators, and without a proper end.
TEST(DropIn, CountsOutliveTheProcess) {
  const Folder folder;
  expect_good("never_destroyed", {folder.variable()});
  EXPECT_EQ(count_of(folder.read(), "AllReduce", "to 1 KiB", true, "small floats"), 2U);
}

TEST(DropIn, ThreadsCountEveryCall) {
  const Folder folder;
  expect_good("threads", {folder.variable()});
  std::uint64_t calls = 0;
  for (const auto& tally : folder.read()) {
    for (const auto& row : tally.rows) {
      if (row.what == "AllReduce") calls += row.count;
    }
  }
  EXPECT_EQ(calls, 4U * 3 * 300 * 2);
}

// What an intercepted call costs on top of the stand-in, which does nothing. The limit is for a machine that
// is busy with other things; the figure is what counts.
TEST(DropIn, CostOfACallThatIsPassedOn) {
  Spawned direct({kProgram, "cost"}, {});
  ASSERT_EQ(direct.wait(), 0) << direct.output();
  const Ended through = run_case("cost");
  ASSERT_EQ(through.code, 0) << through.output;
  double plain[3] = {}, ours[3] = {};
  const char* const format = "ns a call: AllGather %lf AllReduce %lf GetVersion %lf";
  ASSERT_EQ(std::sscanf(direct.output().c_str(), format, &plain[0], &plain[1], &plain[2]), 3)
      << direct.output();
  ASSERT_EQ(std::sscanf(through.output.c_str(), format, &ours[0], &ours[1], &ours[2]), 3) << through.output;
  std::printf("the drop-in adds %.0f ns to AllGather, %.0f to AllReduce, %.0f to GetVersion\n",
              ours[0] - plain[0], ours[1] - plain[1], ours[2] - plain[2]);
  for (int i = 0; i < 3; ++i) EXPECT_LT(ours[i] - plain[i], 3000);
}

}  // namespace
}  // namespace nearlight::test
