// The storm for minutes. One seed is another each time; it is printed, and so is how to run a group again.
#include <gtest/gtest.h>

#include <chrono>

#include "tests/storm/expect_calm.hpp"

namespace nearlight::test {
namespace {

std::uint64_t seed_of_now() {
  return static_cast<std::uint64_t>(std::chrono::system_clock::now().time_since_epoch() /
                                    std::chrono::seconds(1)) *
         1000;
}

TEST(LongStorm, Threads) { expect_calm({.seed = 10'000, .operations = 60'000, .kind = Kind::threads}); }
TEST(LongStorm, Processes) { expect_calm({.seed = 20'000, .operations = 60'000, .kind = Kind::processes}); }
TEST(LongStorm, AnotherSeedEachTime) {
  expect_calm({.seed = seed_of_now(), .operations = 20'000, .kind = Kind::threads});
  expect_calm({.seed = seed_of_now() + 500, .operations = 20'000, .kind = Kind::processes});
}

}  // namespace
}  // namespace nearlight::test
