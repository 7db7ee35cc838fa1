// With CUDA_MODULE_LOADING=LAZY the first launch of a kernel may wait for the kernels that run. A collective
// that waits for this very launch must not be among its victims: the library loads its kernels when a
// communicator is created.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "algorithm/one_shot.hpp"
#include "tests/gpu/ranks.hpp"
#include "tests/support/gpu_support.hpp"
#include "tests/support/spawned.hpp"

namespace nearlight::test {
namespace {

using route::Protocol;
using runtime::CallOptions;

constexpr std::size_t kBufferBytes = std::size_t{2} << 20;

void launch_all_while_one_waits(int gpus) {
  Group waiting({Memory::cuda_vmm, gpus, 2}, test_options(), kBufferBytes);
  ASSERT_TRUE(waiting.ok());
  // One group for each bound of the number of ranks that kernels are made for.
  std::vector<std::unique_ptr<Group>> groups;
  for (const int ranks : {2, 3, 5}) {
    groups.push_back(
        std::make_unique<Group>(Setup{Memory::cuda_vmm, gpus, ranks}, test_options(), kBufferBytes));
    ASSERT_TRUE(groups.back()->ok());
  }
  // The tests' own kernels are loaded beforehand, on every GPU.
  const Pattern pattern{DataType::f32, ReduceOp::sum, Values::general, 1};
  for (Rank& rank : waiting.ranks()) {
    const Work work = rank.work(pattern, 100, true);
    ASSERT_CUDA(cudaSetDevice(rank.device));
    ASSERT_CUDA(prepare(work, rank.stream));
    ASSERT_CUDA(check(work, rank.report, rank.stream));
    static_cast<void>(rank.wait_and_read());  // wrong of course: nothing was reduced
    ASSERT_CUDA(prepare(work, rank.stream));
    ASSERT_CUDA(cudaStreamSynchronize(rank.stream));
  }

  ASSERT_CUDA(cudaSetDevice(waiting[0].device));
  ASSERT_OK(waiting[0].all_reduce(waiting[0].work(pattern, 100, true)));

  const auto begin = std::chrono::steady_clock::now();
  std::uint64_t calls = 0;
  for (auto& group : groups) {
    calls = 0;
    std::vector<std::pair<Work, CallOptions>> all;
    for (const DataType type : kDataTypes) {
      for (const ReduceOp op : kReduceOps) {
        for (const Protocol protocol : {Protocol::ll, Protocol::simple}) {
          // Sizes at which a thread holds 1, 2 and 4 packs, in one round and in several.
          for (const std::uint64_t count : {40u, 10'000u, 50'000u, 100'000u, 400'000u}) {
            // The kernels that take the operator at run time are the same for all of them.
            const bool own = algorithm::has_own_code(type, op);
            if (!own && (op != ReduceOp::prod || count != 10'000u)) continue;
            Work work;
            work.pattern = {type, op, Values::general, calls};
            work.count = count;
            CallOptions options;
            options.protocol = protocol;
            all.emplace_back(work, options);
            ++calls;
          }
        }
      }
    }
    for (const Protocol protocol : {Protocol::ll, Protocol::simple}) {
      Work work;
      work.pattern = pattern;
      work.count = 50;
      CallOptions options;
      options.protocol = protocol;
      options.delay_point = static_cast<std::uint32_t>(algorithm::DelayPoint::after_read);
      options.delay_ns = 1000;
      all.emplace_back(work, options);
      ++calls;
    }
    group->run([&](Rank& rank) {
      for (const auto& [shape, options] : all) {
        ASSERT_OK(rank.prepare_reduce_check(rank.work(shape.pattern, shape.count, false), options));
      }
      ASSERT_CUDA(cudaStreamSynchronize(rank.stream));
    });
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, patient(std::chrono::seconds(10)));

  // The first group's rank 0 has waited all the time.
  EXPECT_EQ(cudaStreamQuery(waiting[0].stream), cudaErrorNotReady);
  static_cast<void>(cudaGetLastError());
  EXPECT_OK(waiting[0].comm->status());
  ASSERT_CUDA(cudaSetDevice(waiting[1].device));
  ASSERT_OK(waiting[1].all_reduce(waiting[1].work(pattern, 100, true)));
  for (Rank& rank : waiting.ranks()) {
    ASSERT_CUDA(cudaSetDevice(rank.device));
    ASSERT_CUDA(check(rank.work(pattern, 100, true), rank.report, rank.stream));
  }
  waiting.expect_clean(1);
  for (auto& group : groups) group->expect_clean(calls);
}

// How modules are loaded is settled with a process's first CUDA call, so the test runs in one of its own.
void in_a_lazy_process(int gpus) {
  const char* const loading = std::getenv("CUDA_MODULE_LOADING");
  if (loading != nullptr && std::strcmp(loading, "LAZY") == 0) return launch_all_while_one_waits(gpus);
  const testing::TestInfo& test = *testing::UnitTest::GetInstance()->current_test_info();
  const std::string name = std::string(test.test_suite_name()) + "." + test.name();
  Spawned program({own_program(), "--gtest_filter=" + name}, {"CUDA_MODULE_LOADING=LAZY"});
  EXPECT_EQ(program.wait(patient(std::chrono::seconds(50))), 0) << program.output();
  EXPECT_NE(program.output().find("[       OK ] " + name), std::string::npos) << program.output();
}

TEST(LazyLoadingGpu, FirstLaunchesWhileACollectiveWaits) { in_a_lazy_process(1); }
TEST(LazyLoadingGpuTwoGpus, FirstLaunchesWhileACollectiveWaits) { in_a_lazy_process(2); }

}  // namespace
}  // namespace nearlight::test
