// How the drop-in comes into a process, and which NCCL stands behind it.
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
const std::string kAudit = AUDIT;
const std::string kOld = OLD_NCCL;
const std::string kModule = LINKED_MODULE;
const std::string kPreload = "LD_PRELOAD=" + kDropIn;
const std::string kAuditToo = "LD_AUDIT=" + kAudit;

struct Ended {
  int code;
  std::string output;
};

Ended run(const std::vector<std::string>& words, const std::vector<std::string>& environment) {
  Spawned program(words, environment);
  const int code = program.wait(std::chrono::seconds(60));
  return {code, program.output()};
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST(Loading, WithoutItNothingIsTaken) {
  const Ended ended = run({kProgram, "taken"}, {});
  EXPECT_EQ(ended.code, 1) << "the program's check of what is taken passes without the drop-in";
}

TEST(Loading, PreloadForALinkedProgram) {
  const Ended ended = run({kProgram, "taken"}, {kPreload});
  EXPECT_EQ(ended.code, 0) << ended.output;
}

// The variable comes before the copy that the program is linked to; the stand-ins share no communicators.
TEST(Loading, VariableNamesTheCopy) {
  const Ended ended = run({kProgram, "newer_function"}, {kPreload, "NEARLIGHT_NCCL_LIB=" + kSecond});
  EXPECT_EQ(ended.code, 0) << ended.output;
  EXPECT_TRUE(has(ended.output, "2 copies of NCCL are in this process: " + kFirst + " " + kSecond))
      << ended.output;
  EXPECT_TRUE(has(ended.output, "all calls go to " + kSecond)) << ended.output;
}

TEST(Loading, VariableThatNamesNothing) {
  const Ended ended = run({kProgram, "taken"}, {kPreload, "NEARLIGHT_NCCL_LIB=/nowhere/libnccl.so.2"});
  EXPECT_EQ(ended.code, 1) << ended.output;
  EXPECT_TRUE(has(ended.output, "has no NCCL to stand in front of")) << ended.output;
  EXPECT_TRUE(has(ended.output, "/nowhere/libnccl.so.2")) << ended.output;
}

TEST(Loading, FunctionThatNcclLacksIsNamed) {
  const Ended ended = run({kProgram, "missing_function"}, {kPreload, "NEARLIGHT_NCCL_LIB=" + kOld});
  EXPECT_EQ(ended.code, 0) << ended.output;
  EXPECT_TRUE(has(ended.output, kOld + " (version code 22809) has no function ncclCommShrink"))
      << ended.output;
}

TEST(Loading, VariableThatNamesTheDropIn) {
  const Ended ended = run({kProgram, "taken"}, {kPreload, "NEARLIGHT_NCCL_LIB=" + kDropIn});
  EXPECT_EQ(ended.code, 1) << ended.output;
  EXPECT_TRUE(has(ended.output, "is the drop-in itself")) << ended.output;
}

// What preloading alone cannot do, so that the next tests mean something.
TEST(Loading, PreloadDoesNotReachAProgramThatDlopens) {
  const Ended ended = run({kDlopen, kFirst}, {kPreload});
  EXPECT_EQ(ended.code, 0) << ended.output;
  EXPECT_TRUE(has(ended.output, "nccl AllReduce r0")) << ended.output;
  EXPECT_FALSE(has(ended.output, "nearlight AllReduce")) << ended.output;
}

// As PyTorch has it: the program opens a library, out of everybody's sight, and the library is linked to
// NCCL.
TEST(Loading, PreloadForAProgramThatDlopensWhatIsLinked) {
  for (const auto& environment : {std::vector{kPreload}, std::vector{kPreload, kAuditToo}}) {
    const Ended ended = run({kDlopen, kModule}, environment);
    EXPECT_EQ(ended.code, 0) << ended.output;
    EXPECT_TRUE(has(ended.output, "nearlight AllReduce r0")) << ended.output;
    EXPECT_FALSE(has(ended.output, "nccl AllReduce r0")) << ended.output;
  }
}

TEST(Loading, AuditForAProgramThatDlopens) {
  const Ended ended = run({kDlopen, kFirst}, {kPreload, kAuditToo});
  EXPECT_EQ(ended.code, 0) << ended.output;
  EXPECT_TRUE(has(ended.output, "nearlight AllReduce r0")) << ended.output;
  EXPECT_FALSE(has(ended.output, "nccl AllReduce r0")) << ended.output;
  // The drop-in has no such function: NCCL's own.
  EXPECT_TRUE(has(ended.output, "tomorrow 22809")) << ended.output;
}

TEST(Loading, AuditChangesNothingForALinkedProgram) {
  for (const char* name : {"taken", "forwarded", "groups", "life", "newer_function"}) {
    const Ended ended = run({kProgram, name}, {kPreload, kAuditToo});
    EXPECT_EQ(ended.code, 0) << ended.output;
  }
}

// Alone it has nothing to redirect to.
TEST(Loading, AuditAloneDoesNothing) {
  const Ended ended = run({kDlopen, kFirst}, {kAuditToo});
  EXPECT_EQ(ended.code, 0) << ended.output;
  EXPECT_TRUE(has(ended.output, "nccl AllReduce r0")) << ended.output;
}

// Calls by whichever copy come to the drop-in, which passes all on to one, and says so.
TEST(Loading, TwoCopiesAreReported) {
  const Ended ended = run({kDlopen, kFirst, kSecond}, {kPreload, kAuditToo});
  EXPECT_EQ(ended.code, 0) << ended.output;
  EXPECT_TRUE(has(ended.output, "2 copies of NCCL are in this process: " + kFirst + " " + kSecond))
      << ended.output;
  EXPECT_TRUE(has(ended.output, "all calls go to " + kFirst)) << ended.output;
}

TEST(Loading, OneOfTwoCopiesByTheVariable) {
  const Ended ended = run({kDlopen, kFirst, kSecond}, {kPreload, kAuditToo, "NEARLIGHT_NCCL_LIB=" + kSecond});
  EXPECT_EQ(ended.code, 0) << ended.output;
  EXPECT_TRUE(has(ended.output, "nearlight AllReduce r0")) << ended.output;  // the second one's log
  EXPECT_TRUE(has(ended.output, "all calls go to " + kSecond)) << ended.output;
}

}  // namespace
}  // namespace nearlight::test
