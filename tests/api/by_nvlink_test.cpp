// Creation that takes no GPUs but those that NVLink connects, on the stand-in for CUDA.
#include <gtest/gtest.h>

#include <initializer_list>
#include <string>

#include "runtime/cuda_places.hpp"
#include "tests/api/fake_group.hpp"

namespace nearlight::test {
namespace {

// GPUs of which it is not known that NVLink connects them are taken by who asks for them alone.
TEST(CudaCallsByNvlink, GpusBesideNvlinkAreRefusedOnAllRanksWhereItIsAsked) {
  for (const bool asked : {true, false}) {
    FakePair pair;
    pair.by_nvlink = asked;
    for (const Created& one : create_pair(pair)) {
      EXPECT_EQ(one.status().code(), asked ? Code::unsupported : Code::ok) << one.status().to_string();
      const bool told = one.status().text().find("NEARLIGHT_NCCL_MEMORY") != std::string::npos;
      EXPECT_EQ(told, asked) << one.status().to_string();
    }
    pair.devices = {1, 1};  // nothing lies between these
    for (const Created& one : create_pair(pair)) EXPECT_TRUE(one.ok()) << one.status().to_string();
  }
}

TEST(CudaCallsByNvlink, OnePairBesideNvlinkIsEnough) {
  using probe::PathType;
  const auto fits = [](std::initializer_list<PathType> pairs) {
    runtime::Paths paths;
    for (const PathType path : pairs) runtime::add_path(paths, path);
    return runtime::check_by_nvlink(paths).ok();
  };
  EXPECT_TRUE(fits({}));
  EXPECT_TRUE(fits({PathType::nvl, PathType::same_gpu, PathType::c2c}));
  for (const PathType path : {PathType::pxb, PathType::phb, PathType::sys, PathType::unknown}) {
    EXPECT_FALSE(fits({path})) << probe::name_of(path);
    EXPECT_FALSE(fits({PathType::nvl, path, PathType::c2c, PathType::same_gpu})) << probe::name_of(path);
  }
}

}  // namespace
}  // namespace nearlight::test
