// Every step of creating GPU communicators fails once, on every rank.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <mutex>
#include <string>
#include <vector>

#include "base/fault_point.hpp"
#include "tests/gpu/ranks.hpp"
#include "tests/gpu/setups.hpp"
#include "tests/support/gpu_support.hpp"

namespace nearlight::test {
namespace {

using testing::Contains;
using testing::HasSubstr;

runtime::Options options_of() {
  runtime::Options options = test_options();
  options.calibrate = true;  // the default
  options.regions = 16;
  return options;
}

// The points that one creation comes to, those of GPUs alone: what is the host's is walked without one.
std::vector<const fault_points::Point*> points_of(const Setup& setup) {
  std::mutex mutex;
  std::vector<const fault_points::Point*> seen;
  const auto created = create_communicators(setup, options_of(), [&](int) {
    return [&](const fault_points::Point& point) -> Status {
      const std::lock_guard lock(mutex);
      const bool gpu = point.creation != fault_points::Creation::host;
      if (gpu && std::find(seen.begin(), seen.end(), &point) == seen.end()) seen.push_back(&point);
      return {};
    };
  });
  for (const auto& one : created) EXPECT_OK(one.status());
  return seen;
}

class CreationGpu : public testing::TestWithParam<Setup> {
 protected:
  static std::vector<std::size_t> free_bytes() {
    std::vector<std::size_t> all;
    for (int device = 0; device < GetParam().gpus; ++device) {
      std::size_t free = 0, total = 0;
      EXPECT_CUDA(cudaSetDevice(device));
      EXPECT_CUDA(cudaDeviceSynchronize());
      EXPECT_CUDA(cudaMemGetInfo(&free, &total));
      all.push_back(free);
    }
    return all;
  }
};

TEST_P(CreationGpu, AStepThatFailsIsToldToAllAndLeavesNothing) {
  const auto points = points_of(GetParam());
  std::vector<const fault_points::Point*> expected = {&fault_points::kCudaDevice, &fault_points::kCudaControl,
                                                      &fault_points::kCudaPackets};
  if (GetParam().ranks <= GetParam().gpus) expected.push_back(&fault_points::kCudaCalibrate);
  if (GetParam().memory == Memory::nccl_window) {
    expected.push_back(&fault_points::kNcclRegister);
  } else {
    expected.push_back(&fault_points::kVmmCreate);
  }
  for (const auto* point : expected) EXPECT_THAT(points, Contains(point)) << point->name;

  const auto fail_at = [](const fault_points::Point& point, int failing) {
    return create_communicators(GetParam(), options_of(), [&point, failing](int rank) {
      return [&point, rank, failing](const fault_points::Point& here) {
        return rank == failing && &here == &point ? fault_points::planted_failure(here) : Status();
      };
    });
  };
  // What CUDA and NCCL keep for good is taken by the first failures.
  for (const auto* point : points) (void)fail_at(*point, 0);
  const auto before = free_bytes();
  for (const auto* point : points) {
    for (const int failing : {0, GetParam().ranks - 1}) {
      const auto created = fail_at(*point, failing);
      for (std::size_t rank = 0; rank < created.size(); ++rank) {
        ASSERT_FALSE(created[rank].ok()) << point->name << " on rank " << failing << ", rank " << rank;
        EXPECT_THAT(created[rank].status().text(), HasSubstr(point->name));
      }
    }
  }
  EXPECT_EQ(free_bytes(), before);
  // And the next one works.
  for (const auto& one : create_communicators(GetParam(), options_of())) EXPECT_OK(one.status());
}

INSTANTIATE_TEST_SUITE_P(OneGpu, CreationGpu, testing::ValuesIn(setups(1, {2})), setup_name);
INSTANTIATE_TEST_SUITE_P(TwoGpus, CreationGpu, testing::ValuesIn(setups(2, {2})), setup_name);

}  // namespace
}  // namespace nearlight::test
