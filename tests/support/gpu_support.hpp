// What every GPU test program shares: how many GPUs are promised, how long tests run, checks of CUDA calls,
// main().
#pragma once

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "tests/support/stuck.hpp"

namespace nearlight::test {

inline int visible_gpus() {
  int count = 0;
  if (cudaGetDeviceCount(&count) == cudaSuccess) return count;
  static_cast<void>(cudaGetLastError());
  return 0;
}

// NEARLIGHT_REQUIRE_GPUS: tests that need no more than these must run or fail. Unset: what there is, at
// least 1.
inline int promised_gpus() {
  const char* const text = std::getenv("NEARLIGHT_REQUIRE_GPUS");
  if (text != nullptr && *text != '\0') return std::atoi(text);
  return std::max(1, visible_gpus());
}

// NEARLIGHT_TEST_SCALE shrinks loops, for runs under a sanitizer: 1 by default, 0.05 under compute-sanitizer.
inline double test_scale() {
  static const double scale = [] {
    const char* const text = std::getenv("NEARLIGHT_TEST_SCALE");
    const double given = text != nullptr && *text != '\0'                      ? std::atof(text)
                         : std::getenv("NEARLIGHT_UNDER_SANITIZER") != nullptr ? 0.05
                                                                               : 1.0;
    return given > 0 ? given : 1.0;
  }();
  return scale;
}
inline int scaled(int full, int least = 1) {
  return std::max(least, static_cast<int>(std::lround(full * test_scale())));
}
// A limit that healthy work stays under: longer when the work runs under a sanitizer.
inline std::chrono::milliseconds patient(std::chrono::milliseconds limit) {
  const double factor = std::clamp(1.0 / test_scale(), 1.0, 50.0);
  return std::chrono::milliseconds(static_cast<std::int64_t>(static_cast<double>(limit.count()) * factor));
}

#define EXPECT_CUDA(call) EXPECT_STREQ("no error", cudaGetErrorString(call)) << #call
#define ASSERT_CUDA(call) ASSERT_STREQ("no error", cudaGetErrorString(call)) << #call
#define EXPECT_OK(expression)                                                              \
  do {                                                                                     \
    const ::nearlight::Status nl_expected_ok = (expression);                               \
    EXPECT_TRUE(nl_expected_ok.ok()) << #expression << ": " << nl_expected_ok.to_string(); \
  } while (false)
#define ASSERT_OK(expression)                                                              \
  do {                                                                                     \
    const ::nearlight::Status nl_expected_ok = (expression);                               \
    ASSERT_TRUE(nl_expected_ok.ok()) << #expression << ": " << nl_expected_ok.to_string(); \
  } while (false)

// A test that needs two GPUs has TwoGpus in its name. Those that need more GPUs than promised are not run,
// and said not to be. `limit`: of one test (StuckWatch), where nothing runs under a tool; 0: none.
inline int gpu_test_main(int argc, char** argv, std::chrono::seconds limit = std::chrono::seconds(60)) {
  // Before the first CUDA call: each rank of a GPU needs a queue of its own, and with lazy loading the first
  // launch of one of our kernels would wait for the library's that spin.
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
  setenv("CUDA_MODULE_LOADING", "EAGER", 0);
  testing::InitGoogleTest(&argc, argv);
  if (!testing::GTEST_FLAG(list_tests)) {
    const int promised = promised_gpus();
    std::printf("GPUs: %d promised, %d visible; scale %.3g\n", promised, visible_gpus(), test_scale());
    if (promised < 2) {
      std::string filter = testing::GTEST_FLAG(filter);
      filter += filter.find('-') == std::string::npos ? "-*TwoGpus*" : ":*TwoGpus*";
      testing::GTEST_FLAG(filter) = filter;
      std::printf("Left out, as one GPU is promised: the tests named *TwoGpus*\n");
    }
    std::fflush(stdout);
  }
  if (limit.count() > 0) tell_where_tests_are_stuck(patient(limit));
  return RUN_ALL_TESTS();
}

}  // namespace nearlight::test
