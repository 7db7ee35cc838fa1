// The storm on GPUs. With arguments of its own the program runs that storm alone, for as long as they say:
// nearlight_test_storm_gpu --seed 7 --seconds 300 --operations 0 --gpus 2
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "tests/gpu/storm_gpu.hpp"
#include "tests/support/gpu_support.hpp"

namespace nearlight::test {
namespace {

using testing::HasSubstr;

GpuStorm by_hand;

GpuStormOutcome expect_calm(const GpuStorm& storm) {
  std::printf("%s\n", command_line_of(storm).c_str());
  std::fflush(stdout);
  GpuStormOutcome outcome = run_gpu_storm(storm);
  std::printf("%s\n", outcome.to_string().c_str());
  EXPECT_EQ(outcome.problems, "");
  EXPECT_EQ(outcome.wrong, 0u);
  EXPECT_EQ(outcome.stuck, 0u);
  return outcome;
}

std::uint64_t operations(int full) { return static_cast<std::uint64_t>(scaled(full, 200)); }

// For the command line: a test there alone.
class ByHand : public testing::Test {
  void TestBody() override { expect_calm(by_hand); }
};

TEST(StormGpu, Calm) {
  const GpuStormOutcome outcome = expect_calm({.seed = 1, .operations = operations(120'000), .seconds = 60});
  EXPECT_GE(outcome.operations, operations(10'000)) << "too slow to tell anything";
  EXPECT_GT(outcome.eager, 0u);
  EXPECT_GT(outcome.replayed, 0u);
  EXPECT_GT(outcome.messages, 0u);
}
TEST(StormTwoGpus, Calm) {
  const GpuStormOutcome two =
      expect_calm({.seed = 2, .operations = operations(300'000), .seconds = 60, .gpus = 2, .ranks = 2});
  EXPECT_GE(two.operations, operations(20'000)) << "too slow to tell anything";
  const GpuStormOutcome any =
      expect_calm({.seed = 30, .operations = operations(100'000), .seconds = 30, .gpus = 2});
  EXPECT_GE(any.operations, operations(5'000)) << "too slow to tell anything";
}
// A million, of which most are replayed.
TEST(StormTwoGpus, AMillion) {
  const GpuStormOutcome outcome =
      expect_calm({.seed = 1000, .operations = operations(1'000'000), .seconds = 100, .gpus = 2, .ranks = 2});
  EXPECT_GE(outcome.operations, operations(1'000'000)) << "the time was over before";
}
#if NEARLIGHT_TEST_NCCL
TEST(StormTwoGpus, OnWindowsOfNccl) {
  const GpuStormOutcome outcome = expect_calm(
      {.seed = 500, .operations = operations(100'000), .seconds = 40, .gpus = 2, .windows = true});
  EXPECT_GE(outcome.operations, operations(10'000)) << "too slow to tell anything";
}
#endif
void expect_staged(const GpuStorm& storm) {
  const GpuStormOutcome outcome = expect_calm(storm);
  EXPECT_GE(outcome.operations, operations(1'000)) << "too slow to tell anything";
  EXPECT_GT(outcome.staged, 0u);
}
TEST(StormGpu, WithCallsThatTheCpuMakes) {
  expect_staged({.seed = 200, .operations = operations(20'000), .seconds = 30, .ranks = 2, .staged = true});
}
TEST(StormTwoGpus, WithCallsThatTheCpuMakes) {
  expect_staged(
      {.seed = 201, .operations = operations(20'000), .seconds = 30, .gpus = 2, .ranks = 2, .staged = true});
}

// What a storm says that went wrong: how to run it again.
GpuStorm read_again(const std::string& problems) {
  const std::size_t at = problems.find("again: ");
  std::string line = "program " + problems.substr(at == std::string::npos ? problems.size() : at + 7);
  line = line.substr(0, line.find('\n'));
  std::vector<char*> words;
  for (char* word = std::strtok(line.data(), " "); word != nullptr; word = std::strtok(nullptr, " "))
    words.push_back(word);
  GpuStorm storm;
  std::string error;
  EXPECT_TRUE(read_command_line(static_cast<int>(words.size()), words.data(), storm, error)) << error;
  return storm;
}

// The storm must be able to find something, and say how to find it again.
TEST(StormGpu, FindsAWrongInputAndRunsItAgain) {
  GpuStorm storm{.seed = 77, .operations = 2000, .ranks = 2, .plant = GpuStorm::Plant::other_input};
  const GpuStormOutcome outcome = run_gpu_storm(storm);
  EXPECT_GT(outcome.wrong, 0u);
  EXPECT_THAT(outcome.problems, HasSubstr("again: --seed 77 "));
  const GpuStorm again = read_again(outcome.problems);
  EXPECT_EQ(again.plant, storm.plant);
  EXPECT_GT(run_gpu_storm(again).wrong, 0u);
}
TEST(StormGpu, FindsACallThatIsLeftOut) {
  GpuStorm storm{.seed = 78, .operations = 2000, .ranks = 2, .plant = GpuStorm::Plant::stays_away};
  const GpuStormOutcome outcome = run_gpu_storm(storm);
  EXPECT_GT(outcome.stuck, 0u);
  EXPECT_THAT(outcome.problems, HasSubstr("again: --seed 78 "));
}

TEST(StormGpu, TheCommandLineIsReadBack) {
  for (const bool windows : {false, true}) {
    const GpuStorm storm{.seed = 9,
                         .operations = 8,
                         .seconds = 7,
                         .gpus = 2,
                         .ranks = 4,
                         .windows = windows,
                         .staged = !windows,
                         .plant = windows ? GpuStorm::Plant::stays_away : GpuStorm::Plant::none};
    EXPECT_EQ(command_line_of(read_again("\n  again: " + command_line_of(storm) + "\n  rank 0")),
              command_line_of(storm));
  }
  GpuStorm read;
  std::string error;
  char name[] = "program", option[] = "--ranks", value[] = "1";
  char* wrong[] = {name, option, value};
  EXPECT_FALSE(read_command_line(3, wrong, read, error));
  EXPECT_THAT(error, HasSubstr("--ranks cannot be \"1\""));
  char windows[] = "--windows", staged[] = "--staged", one[] = "1";
  char* both[] = {name, windows, one, staged, one};
  EXPECT_FALSE(read_command_line(5, both, read, error));
  EXPECT_THAT(error, HasSubstr("--staged 1"));
}

}  // namespace

int storm_gpu_main(int argc, char** argv) {
  const bool is_by_hand =
      argc > 1 && std::strncmp(argv[1], "--gtest", 7) != 0 && std::strncmp(argv[1], "--", 2) == 0;
  if (!is_by_hand) return gpu_test_main(argc, argv, std::chrono::seconds(148));
  std::string error;
  if (!read_command_line(argc, argv, by_hand, error)) {
    std::fprintf(stderr, "%s; it takes %s\n", error.c_str(), command_line_of({}).c_str());
    return 2;
  }
  testing::RegisterTest("StormGpu", "ByHand", nullptr, nullptr, __FILE__, __LINE__,
                        []() -> testing::Test* { return new ByHand; });
  char filter[] = "--gtest_filter=StormGpu.ByHand";
  char* words[] = {argv[0], filter, nullptr};
  return gpu_test_main(2, words, std::chrono::seconds(0));  // it ends by itself
}

}  // namespace nearlight::test

int main(int argc, char** argv) { return nearlight::test::storm_gpu_main(argc, argv); }
