// Which groups of ranks the parametrised tests run on.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/gpu/ranks.hpp"

namespace nearlight::test {

inline std::string setup_name(const testing::TestParamInfo<Setup>& info) { return name_of(info.param); }

inline std::vector<Setup> setups(int gpus, const std::vector<int>& ranks) {
  std::vector<Setup> all;
  for (const int n : ranks) all.push_back({Memory::cuda_vmm, gpus, n});
  if (gpus > 1 && NEARLIGHT_TEST_NCCL) all.push_back({Memory::nccl_window, gpus, gpus});
  return all;
}

// Every number of ranks; on two GPUs NCCL's windows, too.
inline std::vector<Setup> all_on_one_gpu() { return setups(1, {2, 3, 4, 5, 6, 7, 8}); }
inline std::vector<Setup> all_on_two_gpus() { return setups(2, {2, 3, 4, 5, 6, 7, 8}); }
// One a kernel's bound of the number of ranks (2, 4, 8), for the longer tests.
inline std::vector<Setup> some_on_one_gpu() { return setups(1, {2, 3, 8}); }
inline std::vector<Setup> some_on_two_gpus() { return setups(2, {2, 4, 8}); }

}  // namespace nearlight::test
