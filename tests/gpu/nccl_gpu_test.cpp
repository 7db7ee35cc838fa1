// Attached to an NCCL communicator: it stays the caller's and goes on working, beside ours and after it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <thread>
#include <vector>

#include "memory/nccl_api.hpp"
#include "runtime/create.hpp"
#include "tests/gpu/ranks.hpp"
#include "tests/support/gpu_support.hpp"

namespace nearlight::test {
namespace {

using testing::HasSubstr;

constexpr std::size_t kBufferBytes = std::size_t{1} << 20;
constexpr Setup kTwo{Memory::nccl_window, 2, 2};

// The same as our call, by NCCL; types and operators have NCCL's numbers.
Status by_nccl(const Rank& rank, const Work& work) {
  NL_TRY_ASSIGN(const memory::Nccl* const nccl, memory::Nccl::find());
  NL_TRY_ASSIGN(const auto comms, nccl_communicators(rank.nranks));
  NL_TRY(ok_or("prepare", prepare(work, rank.stream)));
  NL_TRY(nccl->all_reduce(work.send, work.recv, work.count, static_cast<int>(work.pattern.type),
                          static_cast<int>(work.pattern.op), comms[static_cast<std::size_t>(rank.rank)],
                          rank.stream));
  return ok_or("check", check(work, rank.report, rank.stream));
}

TEST(NcclGpuTwoGpus, OurCallsAndItsOwnTakeTurns) {
  Group group(kTwo, test_options(), kBufferBytes);
  ASSERT_TRUE(group.ok());
  const auto turns = static_cast<std::uint64_t>(scaled(100, 4));
  group.run([&](Rank& rank) {
    // NCCL sets itself up at its first call, which must not happen beside a kernel that waits.
    ASSERT_OK(by_nccl(rank, rank.work({DataType::i32, ReduceOp::sum, Values::general, 0}, 1000, false)));
    ASSERT_CUDA(cudaStreamSynchronize(rank.stream));
    group.meet();
    for (std::uint64_t turn = 0; turn < turns; ++turn) {
      const Work work =
          rank.work({DataType::i32, ReduceOp::sum, Values::general, turn}, 1000 + turn, turn % 2 == 0);
      ASSERT_OK(rank.prepare_reduce_check(work));
      ASSERT_OK(by_nccl(rank, work));
      group.keep_pace(turn);
    }
  });
  group.expect_clean(2 * turns + 1);
}

TEST(NcclGpuTwoGpus, SeveralAttachmentsOneAfterAnotherAndAtOnce) {
  for (int i = 0; i < 3; ++i) {
    Group first(kTwo, test_options(), kBufferBytes), second(kTwo, test_options(), kBufferBytes);
    ASSERT_TRUE(first.ok() && second.ok());
    for (Group* group : {&first, &second, &first}) {
      group->run([&](Rank& rank) {
        ASSERT_OK(rank.prepare_reduce_check(
            rank.work({DataType::bf16, ReduceOp::sum, Values::general, 3}, 5001, false)));
      });
      group->expect_clean(1);
    }
  }
  // And NCCL's communicator is none the worse for it.
  Group group({Memory::cuda_vmm, 2, 2}, test_options(), kBufferBytes);
  ASSERT_TRUE(group.ok());
  group.run([&](Rank& rank) {
    ASSERT_OK(by_nccl(rank, rank.work({DataType::i32, ReduceOp::max, Values::general, 9}, 1000, false)));
  });
  group.expect_clean(1);
}

TEST(NcclGpuTwoGpus, OptionsThatDifferAreRefusedOnBothRanks) {
  const auto comms = nccl_communicators(2);
  ASSERT_OK(comms.status());
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      ASSERT_CUDA(cudaSetDevice(rank));
      runtime::Options options = test_options();
      options.slots = rank == 0 ? 64 : 96;
      const auto created = runtime::create_cuda_nccl((*comms)[static_cast<std::size_t>(rank)], options);
      EXPECT_EQ(created.status().code(), Code::invalid_usage) << created.status().to_string();
      EXPECT_THAT(created.status().text(), HasSubstr("slots"));
    });
  }
  for (auto& thread : threads) thread.join();
}

TEST(NcclGpu, NoCommunicator) {
  const auto created = runtime::create_cuda_nccl(nullptr, test_options());
  EXPECT_EQ(created.status().code(), Code::invalid_argument) << created.status().to_string();
}

}  // namespace
}  // namespace nearlight::test
