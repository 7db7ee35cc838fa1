// Tests that run once with threads and once with processes.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/support/ranks.hpp"

namespace nearlight::test {

inline std::vector<Kind> kinds() {
#if defined(__SANITIZE_THREAD__)
  return {Kind::threads};
#else
  return {Kind::threads, Kind::processes};
#endif
}

class ByKind : public testing::TestWithParam<Kind> {};

inline std::string kind_name(const testing::TestParamInfo<Kind>& info) { return name_of(info.param); }

}  // namespace nearlight::test
