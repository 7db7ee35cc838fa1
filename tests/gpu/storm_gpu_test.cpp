// The storm on GPUs. With arguments of its own the program runs that storm alone, for as long as they say:
// nearlight_test_storm_gpu --seed 7 --seconds 300 --operations 0 --gpus 2
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstring>

#include "tests/gpu/storm_gpu.hpp"
#include "tests/support/gpu_support.hpp"

namespace nearlight::test {
namespace {

using testing::HasSubstr;

GpuStorm by_hand;
bool is_by_hand = false;

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

TEST(StormGpu, ByHand) {
  if (!is_by_hand) return;  // it is for the command line
  expect_calm(by_hand);
}

TEST(StormGpu, Calm) {
  const GpuStormOutcome outcome = expect_calm({.seed = 1, .operations = operations(120'000), .seconds = 60});
  EXPECT_GE(outcome.operations, operations(10'000)) << "too slow to tell anything";
  EXPECT_GT(outcome.eager, 0u);
  EXPECT_GT(outcome.replayed, 0u);
}
TEST(StormTwoGpus, Calm) {
  expect_calm({.seed = 2, .operations = operations(300'000), .seconds = 60, .gpus = 2, .ranks = 2});
  expect_calm({.seed = 30, .operations = operations(100'000), .seconds = 30, .gpus = 2});
}
// A million, of which most are replayed.
TEST(StormTwoGpus, AMillion) {
  const GpuStormOutcome outcome =
      expect_calm({.seed = 1000, .operations = operations(1'000'000), .seconds = 100, .gpus = 2, .ranks = 2});
  EXPECT_GE(outcome.operations, operations(1'000'000)) << "the time was over before";
}
#if NEARLIGHT_TEST_NCCL
TEST(StormTwoGpus, OnWindowsOfNccl) {
  expect_calm({.seed = 500, .operations = operations(100'000), .seconds = 40, .gpus = 2, .windows = true});
}
#endif
TEST(StormGpu, WithCallsThatTheCpuMakes) {
  expect_calm({.seed = 200, .operations = operations(20'000), .seconds = 30, .ranks = 2, .staged = true});
}
TEST(StormTwoGpus, WithCallsThatTheCpuMakes) {
  expect_calm(
      {.seed = 201, .operations = operations(20'000), .seconds = 30, .gpus = 2, .ranks = 2, .staged = true});
}

// The storm must be able to find something, and say how to find it again.
TEST(StormGpu, FindsAWrongInputAndRunsItAgain) {
  GpuStorm storm{.seed = 77, .operations = 2000, .ranks = 2, .plant = GpuStorm::Plant::other_input};
  const GpuStormOutcome outcome = run_gpu_storm(storm);
  EXPECT_GT(outcome.wrong, 0u);
  EXPECT_THAT(outcome.problems, HasSubstr("again: --seed 77 "));
}
TEST(StormGpu, FindsACallThatIsLeftOut) {
  GpuStorm storm{.seed = 78, .operations = 2000, .ranks = 2, .plant = GpuStorm::Plant::stays_away};
  const GpuStormOutcome outcome = run_gpu_storm(storm);
  EXPECT_NE(outcome.problems, "");
  EXPECT_THAT(outcome.problems, HasSubstr("again: --seed 78 "));
}

TEST(StormGpu, TheCommandLineIsReadBack) {
  const GpuStorm storm{
      .seed = 9, .operations = 8, .seconds = 7, .gpus = 2, .ranks = 4, .windows = true, .staged = true};
  std::string line = "program " + command_line_of(storm);
  std::vector<char*> words;
  for (char* word = std::strtok(line.data(), " "); word != nullptr; word = std::strtok(nullptr, " "))
    words.push_back(word);
  GpuStorm read;
  std::string error;
  ASSERT_TRUE(read_command_line(static_cast<int>(words.size()), words.data(), read, error)) << error;
  EXPECT_EQ(command_line_of(read), command_line_of(storm));
  char name[] = "program", option[] = "--ranks", value[] = "1";
  char* wrong[] = {name, option, value};
  EXPECT_FALSE(read_command_line(3, wrong, read, error));
  EXPECT_THAT(error, HasSubstr("--ranks cannot be \"1\""));
}

}  // namespace

int storm_gpu_main(int argc, char** argv) {
  is_by_hand = argc > 1 && std::strncmp(argv[1], "--gtest", 7) != 0 && std::strncmp(argv[1], "--", 2) == 0;
  if (!is_by_hand) return gpu_test_main(argc, argv, std::chrono::seconds(148));
  std::string error;
  if (!read_command_line(argc, argv, by_hand, error)) {
    std::fprintf(stderr, "%s; it takes %s\n", error.c_str(), command_line_of({}).c_str());
    return 2;
  }
  char filter[] = "--gtest_filter=StormGpu.ByHand";
  char* words[] = {argv[0], filter, nullptr};
  return gpu_test_main(2, words, std::chrono::seconds(0));  // it ends by itself
}

}  // namespace nearlight::test

int main(int argc, char** argv) { return nearlight::test::storm_gpu_main(argc, argv); }
