// Graphs replayed in turns with single calls, in an order that nobody can foresee but that is the same on all
// ranks; then all ranks stand at the same epochs.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "tests/gpu/ranks.hpp"
#include "tests/gpu/setups.hpp"
#include "tests/support/gpu_support.hpp"

namespace nearlight::test {
namespace {

using route::Protocol;
using runtime::CallOptions;

constexpr std::size_t kBufferBytes = std::size_t{8} << 20;
constexpr std::uint64_t kLargeCount = 512 * 1024;  // f32: 2 MiB

class InterleaveGpu : public testing::TestWithParam<Setup> {};

TEST_P(InterleaveGpu, GraphsAndSingleCallsByChance) {
  Group group(GetParam(), test_options(), kBufferBytes);
  ASSERT_TRUE(group.ok());
  const int steps = scaled(100'000, 40);
  const auto random = [](int step, std::uint32_t salt, std::uint32_t below) {
    return mixed(salt, 0, static_cast<std::uint64_t>(step)) % below;
  };
  const auto times_of = [&](int step) { return 1 + random(step, 2, 4); };
  constexpr std::uint64_t kSmall[] = {4, 100, 1000, 4096, 33};
  group.run([&](Rank& rank) {
    const auto small = [&](std::uint64_t seed, std::uint64_t count, std::uint32_t id, std::uint64_t* counter,
                           const CallOptions& options = {}) {
      Work work =
          rank.work({DataType::f32, ReduceOp::sum, Values::general, seed}, count, id % 3 == 0, 4, 8, id);
      work.counter = counter;
      return rank.prepare_reduce_check(work, options);
    };
    const Graph first(rank, [&]() -> Status {
      std::uint32_t id = 0;
      for (const std::uint64_t count : kSmall) {
        NL_TRY(small(1000 * id, count, id, rank.counter));
        ++id;
      }
      return ok_or("advance", advance(rank.counter, rank.stream));
    });
    const Graph second(rank, [&]() -> Status {
      std::uint32_t id = 10;
      for (const Protocol protocol : group.protocols()) {
        CallOptions options;
        options.protocol = protocol;
        NL_TRY(small(1000 * id, 40'000, id, rank.counter, options));
        ++id;
      }
      return ok_or("advance", advance(rank.counter, rank.stream));
    });
    ASSERT_TRUE(first.ok() && second.ok());
    group.meet();
    for (int step = 0; step < steps; ++step) {
      const auto seed = static_cast<std::uint64_t>(step);
      switch (random(step, 1, 16)) {
        case 0:
          ASSERT_OK(small(seed, kLargeCount + seed % 5, 20, nullptr));
          break;
        case 1:
        case 2:
          ASSERT_CUDA(second.launch());
          break;
        case 3:
        case 4:
        case 5:
          for (std::uint32_t times = times_of(step); times > 0; --times) ASSERT_CUDA(first.launch());
          break;
        default:
          ASSERT_OK(small(seed, 1 + seed % 3000, 21, nullptr));
      }
      group.keep_pace(seed);
    }
    ASSERT_CUDA(cudaStreamSynchronize(rank.stream));
  });
  std::uint64_t checks = 0;
  for (int step = 0; step < steps; ++step) {
    const std::uint32_t choice = random(step, 1, 16);
    checks += choice >= 3 && choice <= 5   ? std::uint64_t{std::size(kSmall)} * times_of(step)
              : choice == 1 || choice == 2 ? std::size(group.protocols())
                                           : 1;
  }
  group.expect_clean(checks, [](std::uint32_t id) { return "case " + std::to_string(id); });
  const auto epochs = group[0].comm->epochs();
  ASSERT_OK(epochs.status());
  EXPECT_GE(epochs->at(0), checks) << "every call takes an epoch of the first region";
  for (const Rank& rank : group.ranks()) {
    const auto others = rank.comm->epochs();
    ASSERT_OK(others.status());
    EXPECT_EQ(*others, *epochs) << "rank " << rank.rank;
  }
}

INSTANTIATE_TEST_SUITE_P(OneGpu, InterleaveGpu, testing::ValuesIn(setups(1, {2})), setup_name);
INSTANTIATE_TEST_SUITE_P(TwoGpus, InterleaveGpu, testing::ValuesIn(setups(2, {2})), setup_name);

}  // namespace
}  // namespace nearlight::test
