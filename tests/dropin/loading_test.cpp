// How the drop-in comes into a process, and which NCCL stands behind it.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/support/spawned.hpp"

namespace nearlight::test {
namespace {

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
  const Ended ended = run({PROGRAM, "taken"}, {});
  EXPECT_EQ(ended.code, 1) << "the program's check of what is taken passes without the drop-in";
}

TEST(Loading, PreloadForALinkedProgram) {
  const Ended ended = run({PROGRAM, "taken"}, {"LD_PRELOAD=" DROP_IN});
  EXPECT_EQ(ended.code, 0) << ended.output;
}

// The variable comes before the copy that the program is linked to; the stand-ins share no communicators.
TEST(Loading, VariableNamesTheCopy) {
  const Ended ended =
      run({PROGRAM, "newer_function"}, {"LD_PRELOAD=" DROP_IN, "NEARLIGHT_NCCL_LIB=" SECOND_NCCL});
  EXPECT_EQ(ended.code, 0) << ended.output;
  EXPECT_TRUE(has(ended.output, "2 copies of NCCL are in this process: " FIRST_NCCL " " SECOND_NCCL))
      << ended.output;
  EXPECT_TRUE(has(ended.output, "all calls go to " SECOND_NCCL)) << ended.output;
}

TEST(Loading, VariableThatNamesNothing) {
  const Ended ended =
      run({PROGRAM, "taken"}, {"LD_PRELOAD=" DROP_IN, "NEARLIGHT_NCCL_LIB=/nowhere/libnccl.so.2"});
  EXPECT_EQ(ended.code, 1) << ended.output;
  EXPECT_TRUE(has(ended.output, "has no NCCL to stand in front of")) << ended.output;
  EXPECT_TRUE(has(ended.output, "/nowhere/libnccl.so.2")) << ended.output;
}

TEST(Loading, VariableThatNamesTheDropIn) {
  const Ended ended = run({PROGRAM, "taken"}, {"LD_PRELOAD=" DROP_IN, "NEARLIGHT_NCCL_LIB=" DROP_IN});
  EXPECT_EQ(ended.code, 1) << ended.output;
  EXPECT_TRUE(has(ended.output, "is the drop-in itself")) << ended.output;
}

// What preloading alone cannot do, so that the next tests mean something.
TEST(Loading, PreloadDoesNotReachAProgramThatDlopens) {
  const Ended ended = run({DLOPEN_PROGRAM, FIRST_NCCL}, {"LD_PRELOAD=" DROP_IN});
  EXPECT_EQ(ended.code, 0) << ended.output;
  EXPECT_TRUE(has(ended.output, "nccl AllReduce r0")) << ended.output;
  EXPECT_FALSE(has(ended.output, "nearlight AllReduce")) << ended.output;
}

}  // namespace
}  // namespace nearlight::test
