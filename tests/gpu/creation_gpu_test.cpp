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
  options.calibrate = true;  // a step more
  options.regions = 16;
  return options;
}

struct Passed {
  const fault_points::Point* point;
  int rank;
};
// Which ranks come to which points in one creation, of those of GPUs: the host's are walked without one.
std::vector<Passed> points_of(const Setup& setup) {
  std::mutex mutex;
  std::vector<Passed> seen;
  const auto created = create_communicators(setup, options_of(), [&](int rank) {
    return [&, rank](const fault_points::Point& point) -> Status {
      const std::lock_guard lock(mutex);
      const bool known = std::any_of(seen.begin(), seen.end(), [&](const Passed& one) {
        return one.point == &point && one.rank == rank;
      });
      if (point.creation != fault_points::Creation::host && !known) seen.push_back({&point, rank});
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
  const auto passed = points_of(GetParam());
  std::vector<const fault_points::Point*> points;
  for (const Passed& one : passed) points.push_back(one.point);
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
  for (const Passed& one : passed) (void)fail_at(*one.point, one.rank);
  const auto before = free_bytes();
  for (const Passed& one : passed) {
    const auto created = fail_at(*one.point, one.rank);
    for (std::size_t rank = 0; rank < created.size(); ++rank) {
      ASSERT_FALSE(created[rank].ok()) << one.point->name << " on rank " << one.rank << ", rank " << rank;
      EXPECT_THAT(created[rank].status().text(), HasSubstr(one.point->name));
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
