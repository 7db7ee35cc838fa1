// More elements than 32 bits can count, all of them checked.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>

#include "tests/gpu/ranks.hpp"
#include "tests/gpu/setups.hpp"
#include "tests/support/gpu_support.hpp"

namespace nearlight::test {
namespace {

class LargeGpu : public testing::TestWithParam<Setup> {};

void reduce_many(const Setup& setup, DataType type, std::uint64_t count) {
  if (test_scale() < 1.0) count = (std::uint64_t{1} << 22) + count % 8;  // a sanitizer would need hours
  Group group(setup, test_options(), count * element_bytes(type) + 2 * kGuardBytes + 64);
  ASSERT_TRUE(group.ok());
  std::uint64_t checks = 0;
  for (const bool in_place : {false, true}) {
    group.run([&](Rank& rank) {
      // Out of place at odd addresses: every vector is put together from elements. In place at even ones.
      const std::size_t offset = in_place ? 0 : element_bytes(type);
      ASSERT_OK(rank.prepare_reduce_check(
          rank.work({type, ReduceOp::sum, Values::general, 9}, count, in_place, offset, offset)));
    });
    ++checks;
  }
  group.expect_clean(checks);
}

TEST_P(LargeGpu, Bf16) { reduce_many(GetParam(), DataType::bf16, (std::uint64_t{1} << 31) + 1); }
TEST_P(LargeGpu, I32) { reduce_many(GetParam(), DataType::i32, (std::uint64_t{1} << 31) + 3); }

INSTANTIATE_TEST_SUITE_P(OneGpu, LargeGpu, testing::Values(Setup{Memory::cuda_vmm, 1, 2}), setup_name);
INSTANTIATE_TEST_SUITE_P(TwoGpus, LargeGpu, testing::Values(Setup{Memory::cuda_vmm, 2, 2}), setup_name);

}  // namespace
}  // namespace nearlight::test
