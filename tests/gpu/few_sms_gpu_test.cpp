// Calls on what another kernel leaves of the SMs; sizes of scratch that are chosen, and that no GPU has.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <string>

#include "tests/gpu/ranks.hpp"
#include "tests/gpu/setups.hpp"
#include "tests/support/gpu_support.hpp"

namespace nearlight::test {
namespace {

using route::Protocol;
using runtime::CallOptions;
using testing::HasSubstr;

constexpr std::size_t kBufferBytes = std::size_t{16} << 20;
constexpr std::uint32_t kSms = 8;  // that are left

// Fills all SMs of a rank's GPU but the first kSms until it is told to go, or for some seconds.
class Occupied {
 public:
  explicit Occupied(const Rank& rank) {
    EXPECT_CUDA(cudaHostAlloc(reinterpret_cast<void**>(&words_), 2 * sizeof *words_,
                              cudaHostAllocMapped | cudaHostAllocPortable));
    if (words_ == nullptr) return;
    words_[0] = words_[1] = 0;
    const auto limit = patient(std::chrono::seconds(20));
    EXPECT_CUDA(occupy(kSms, words_, static_cast<std::uint64_t>(std::chrono::nanoseconds(limit).count()),
                       rank.streams[1].get()));
    stream_ = rank.streams[1].get();
    const auto begin = std::chrono::steady_clock::now();
    while (std::atomic_ref(words_[1]).load() == 0 && std::chrono::steady_clock::now() - begin < limit)
      continue;
    EXPECT_NE(std::atomic_ref(words_[1]).load(), 0u) << "the SMs were not filled";
  }
  Occupied(const Occupied&) = delete;
  ~Occupied() { leave(); }
  // True when it still ran.
  bool leave() {
    if (words_ == nullptr) return false;
    const bool running = cudaStreamQuery(stream_) == cudaErrorNotReady;
    std::atomic_ref(words_[0]).store(1);
    EXPECT_CUDA(cudaStreamSynchronize(stream_));
    EXPECT_CUDA(cudaFreeHost(words_));
    words_ = nullptr;
    return running;
  }

 private:
  std::uint32_t* words_ = nullptr;  // go; all are there
  cudaStream_t stream_ = nullptr;
};

TEST(FewSmsGpuTwoGpus, CallsFitWhatIsLeft) {
  runtime::Options options = test_options();
  options.max_ctas = kSms;
  Group group({Memory::cuda_vmm, 2, 2}, options, kBufferBytes, 2);
  ASSERT_TRUE(group.ok());
  constexpr std::uint64_t kCounts[] = {4, 1000, 100'000, 2'000'000};
  std::uint32_t checks = 0;
  for (const Protocol protocol : group.protocols()) {
    for (const std::uint64_t count : kCounts) {
      CallOptions how;
      how.protocol = protocol;
      const auto route = group[0].comm->explain_all_reduce(count, DataType::f32, ReduceOp::sum, how);
      ASSERT_OK(route.status());
      EXPECT_LE(route->grid, kSms);
      group.run([&](Rank& rank) {
        const Work work = rank.work({DataType::f32, ReduceOp::sum, Values::general, checks}, count, false);
        ASSERT_CUDA(prepare(work, rank.stream));
        ASSERT_CUDA(cudaStreamSynchronize(rank.stream));
        Occupied occupied(rank);
        group.meet();
        ASSERT_OK(rank.all_reduce(work, how));
        ASSERT_CUDA(cudaStreamSynchronize(rank.stream));
        EXPECT_TRUE(occupied.leave()) << "the other kernel had gone before";
        ASSERT_CUDA(check(work, rank.report, rank.stream));
      });
      ++checks;
    }
  }
  group.expect_clean(checks);
}

// What is chosen decides what fits a round, and its cost is told.
TEST(ScratchGpu, SizesAreTheCallersAndTheirCostIsTold) {
  std::size_t before = 0;
  for (const std::uint32_t packets : {512u, 4096u, 16384u}) {
    runtime::Options options = test_options();
    options.regions = 16;
    options.packets = packets;
    options.slots = 512;
    options.chunk_bytes = 4096;
    Group group({Memory::cuda_vmm, 1, 2}, options, kBufferBytes);
    ASSERT_TRUE(group.ok());
    const auto& comm = *group[0].comm;
    EXPECT_GE(comm.scratch_bytes(), std::size_t{16} * packets * 2 * 2 * 16);
    EXPECT_GT(comm.scratch_bytes(), before);
    before = comm.scratch_bytes();
    const std::uint64_t last = std::uint64_t{16} * packets * 16 / 4;  // floats of one round
    EXPECT_EQ(comm.explain_all_reduce(last, DataType::f32, ReduceOp::sum).protocol, Protocol::sentinel);
    EXPECT_NE(comm.explain_all_reduce(last + 1, DataType::f32, ReduceOp::sum).protocol, Protocol::sentinel);
    group.run([&](Rank& rank) {
      for (const std::uint64_t count : {last, last + 1}) {
        ASSERT_OK(rank.prepare_reduce_check(
            rank.work({DataType::f32, ReduceOp::sum, Values::general, 1}, count, false)));
      }
    });
    group.expect_clean(2);
  }
}

TEST(ScratchGpu, MoreThanTheGpuHasIsAnErrorWithTheSizes) {
  runtime::Options options = test_options();
  options.regions = 1024;
  options.packets = 1u << 20;
  options.chunk_bytes = 64u << 20;
  for (const auto& comm : create_communicators({Memory::cuda_vmm, 1, 2}, options)) {
    ASSERT_FALSE(comm.ok());
    for (const char* word : {"scratch of", "1024 regions", "packets 1048576", "chunk_bytes 67108864"}) {
      EXPECT_THAT(comm.status().text(), HasSubstr(word));
    }
  }
  // And the GPU is as good as before.
  Group group({Memory::cuda_vmm, 1, 2}, test_options(), kBufferBytes);
  ASSERT_TRUE(group.ok());
}

}  // namespace
}  // namespace nearlight::test
