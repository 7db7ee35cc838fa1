// Calls that are handed to the attached NCCL, among calls of our own: eager and in graphs, small and large
// ones in turns, on plain memory and on symmetric windows.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "memory/nccl_api.hpp"
#include "route/table_file.hpp"
#include "runtime/create.hpp"
#include "tests/gpu/ranks.hpp"
#include "tests/support/gpu_support.hpp"
#include "tests/support/table_file.hpp"

namespace nearlight::test {
namespace {

using route::Algorithm;
using runtime::CallOptions;
using testing::HasSubstr;

constexpr std::size_t kBufferBytes = std::size_t{4} << 20;
constexpr Setup kTwo{Memory::nccl_window, 2, 2};
constexpr std::uint64_t kFirstBytes = 256 * 1024;  // handed over from here on
constexpr std::uint64_t kLateNs = 20'000;

CallOptions by_nccl() {
  CallOptions options;
  options.algorithm = Algorithm::nccl;
  return options;
}

// The shipped table with that number.
std::string table_that_hands_over() {
  cudaDeviceProp properties{};
  EXPECT_CUDA(cudaGetDeviceProperties(&properties, 0));
  const route::Target target{true, properties.name, 2};
  route::Table table = route::shipped_table(target);
  table.nccl_first_bytes = kFirstBytes;
  return route::table_text(table, target, "a test");
}

// A group that hands over by its table.
std::unique_ptr<Group> group_that_hands_over() {
  const TableInForce in_force(table_that_hands_over());
  return std::make_unique<Group>(kTwo, test_options(), kBufferBytes);
}

TEST(HandOverGpuTwoGpus, EveryTypeAndOperatorThatNcclTakes) {
  Group group(kTwo, test_options(), kBufferBytes);
  ASSERT_TRUE(group.ok());
  std::uint32_t checks = 0;
  // Whole numbers: the same to the bit, whoever adds them.
  for (const DataType type :
       {DataType::i8, DataType::u8, DataType::i32, DataType::u32, DataType::i64, DataType::u64}) {
    for (const ReduceOp op : {ReduceOp::sum, ReduceOp::prod, ReduceOp::max, ReduceOp::min}) {
      const std::uint64_t count = 256 * 1024 / element_bytes(type) + 3;
      group.run([&](Rank& rank) {
        ASSERT_OK(rank.prepare_reduce_check(
            rank.work({type, op, Values::general, checks}, count, checks % 2 == 1, 0, 0, checks), by_nccl()));
      });
      ++checks;
    }
  }
  group.expect_clean(checks);
}

TEST(HandOverGpuTwoGpus, TheRouteTellsTheBorderAndBothSidesAreRight) {
  const auto group = group_that_hands_over();
  ASSERT_TRUE(group->ok());
  const auto& comm = *(*group)[0].comm;
  const std::uint64_t first = kFirstBytes / 4;
  EXPECT_NE(comm.explain_all_reduce(first - 1, DataType::i32, ReduceOp::sum).algorithm, Algorithm::nccl);
  const auto route = comm.explain_all_reduce(first, DataType::i32, ReduceOp::sum);
  EXPECT_EQ(route.algorithm, Algorithm::nccl);
  EXPECT_THAT(route.reason, HasSubstr("attached NCCL"));
  group->run([&](Rank& rank) {
    for (std::uint32_t i = 0; i < 8; ++i) {
      ASSERT_OK(rank.prepare_reduce_check(
          rank.work({DataType::i32, ReduceOp::sum, Values::general, i}, first - i % 2, i % 3 == 0, 0, 0, i)));
    }
  });
  group->expect_clean(8);
}

// One graph that alternates small calls of our own, both sides of the border, and what NCCL does; replayed
// with new data each time.
TEST(HandOverGpuTwoGpus, AGraphOfSmallAndLargeOnesInTurns) {
  const auto group = group_that_hands_over();
  ASSERT_TRUE(group->ok());
  const std::uint64_t counts[] = {4,    kFirstBytes / 4,     1000, kFirstBytes / 4 - 1,
                                  4096, kFirstBytes / 4 + 5, 33,   3 * kFirstBytes / 4};
  const int replays = scaled(10'000, 20);
  group->run([&](Rank& rank) {
    const Graph graph(rank, [&]() -> Status {
      std::uint32_t id = 0;
      for (const std::uint64_t count : counts) {
        Work work = rank.work({DataType::i32, ReduceOp::sum, Values::general, 1000 * id}, count, id % 3 == 1,
                              4, 8, id);
        work.counter = rank.counter;
        NL_TRY(rank.prepare_reduce_check(work));
        ++id;
      }
      return ok_or("advance", advance(rank.counter, rank.stream));
    });
    ASSERT_TRUE(graph.ok());
    group->meet();
    for (int i = 0; i < replays; ++i) {
      ASSERT_CUDA(graph.launch());
      group->keep_pace(static_cast<std::uint64_t>(i));
    }
    ASSERT_CUDA(cudaStreamSynchronize(rank.stream));
  });
  group->expect_clean(std::size(counts) * static_cast<std::uint64_t>(replays),
                      [&](std::uint32_t id) { return std::to_string(counts[id]) + " elements"; });
}

TEST(HandOverGpuTwoGpus, EagerSmallAndLargeOnesInTurns) {
  const auto group = group_that_hands_over();
  ASSERT_TRUE(group->ok());
  const auto calls = static_cast<std::uint64_t>(scaled(10'000, 40));
  group->run([&](Rank& rank) {
    for (std::uint64_t call = 0; call < calls; ++call) {
      const std::uint64_t count = call % 2 == 0 ? 1 + call % 1000 : kFirstBytes / 4 + call % 7 - 3;
      ASSERT_OK(
          rank.prepare_reduce_check(rank.work({DataType::i32, ReduceOp::sum, Values::general, call}, count,
                                              call % 3 == 0, 0, 0, static_cast<std::uint32_t>(call))));
      group->keep_pace(call);
    }
  });
  group->expect_clean(calls);
}

// ---- symmetric windows --------------------------------------------------------------------------------

// Both buffers of each rank in windows of the NCCL communicator, for the life of this object: NCCL then takes
// the kernels that it has for them.
class Windows {
 public:
  explicit Windows(Group& group) : group_(group), each_(static_cast<std::size_t>(group.nranks())) {
    group.run([&](Rank& rank) {
      Each& mine = each_[static_cast<std::size_t>(rank.rank)];
      const auto nccl = memory::Nccl::find();
      const auto comms = nccl_communicators(rank.nranks);
      ASSERT_OK(nccl.status());
      ASSERT_OK(comms.status());
      mine.nccl = *nccl;
      mine.comm = (*comms)[static_cast<std::size_t>(rank.rank)];
      mine.plain[0] = rank.send;
      mine.plain[1] = rank.recv;
      for (int i = 0; i < 2; ++i) {
        const auto memory = mine.nccl->mem_alloc(kBufferBytes);
        ASSERT_OK(memory.status());
        mine.memory[i] = *memory;
        ASSERT_CUDA(cudaMemset(mine.memory[i], 0, kBufferBytes));
        ASSERT_OK(mine.nccl->window_register(mine.comm, mine.memory[i], kBufferBytes, &mine.window[i]));
        ASSERT_NE(mine.window[i], nullptr) << "no symmetric memory here";
      }
      rank.send = static_cast<char*>(mine.memory[0]);
      rank.recv = static_cast<char*>(mine.memory[1]);
    });
  }
  Windows(const Windows&) = delete;
  ~Windows() {
    group_.run([&](Rank& rank) {
      Each& mine = each_[static_cast<std::size_t>(rank.rank)];
      EXPECT_CUDA(cudaStreamSynchronize(rank.stream));
      group_.meet();
      for (int i = 0; i < 2; ++i) {
        if (mine.window[i] != nullptr) EXPECT_OK(mine.nccl->window_deregister(mine.comm, mine.window[i]));
        if (mine.memory[i] != nullptr) EXPECT_OK(mine.nccl->mem_free(mine.memory[i]));
      }
      if (mine.plain[0] != nullptr) rank.send = mine.plain[0];
      if (mine.plain[1] != nullptr) rank.recv = mine.plain[1];
    });
  }

 private:
  struct Each {
    const memory::Nccl* nccl = nullptr;
    ncclComm* comm = nullptr;
    char* plain[2] = {};
    void* memory[2] = {};
    ncclWindow_vidmem* window[2] = {};
  };
  Group& group_;
  std::vector<Each> each_;
};

// A producer that lets the collective begin before it has written the input, NCCL, and a consumer that
// overwrites the input as soon as it may. f32 from small on: what these kernels did wrong begins at once.
TEST(HandOverGpuTwoGpus, ALateProducerBeforeNcclOnWindows) {
  Group group(kTwo, test_options(), kBufferBytes);
  ASSERT_TRUE(group.ok());
  const Windows windows(group);
  const auto rounds = static_cast<std::uint32_t>(scaled(200, 4));
  const std::uint64_t counts[] = {4, 1024, 16 * 1024, 64 * 1024, 512 * 1024};
  for (const bool in_a_graph : {false, true}) {
    for (const std::uint64_t count : counts) {
      group.run([&](Rank& rank) {
        const auto one = [&](std::uint32_t i, std::uint64_t* counter) -> Status {
          Work work =
              rank.work({DataType::i32, ReduceOp::sum, Values::general, 10 * i}, count, false, 0, 0, i);
          work.counter = counter;
          const std::uint64_t late_ns = (static_cast<std::uint32_t>(rank.rank) + i) % 2 == 0 ? kLateNs : 0;
          NL_TRY(ok_or("prepare_late", prepare_late(work, late_ns, rank.stream)));
          NL_TRY(rank.all_reduce(work, by_nccl()));
          return ok_or("check_and_overwrite", check_and_overwrite(work, rank.report, rank.stream));
        };
        if (!in_a_graph) {
          for (std::uint32_t i = 0; i < rounds; ++i) {
            ASSERT_OK(one(i, nullptr));
            group.keep_pace(i);
          }
          return;
        }
        const Graph graph(rank, [&]() -> Status {
          for (std::uint32_t i = 0; i < 4; ++i) NL_TRY(one(i, rank.counter));
          return ok_or("advance", advance(rank.counter, rank.stream));
        });
        ASSERT_TRUE(graph.ok());
        group.meet();
        for (std::uint32_t i = 0; i < rounds; ++i) {
          ASSERT_CUDA(graph.launch());
          group.keep_pace(i);
        }
        ASSERT_CUDA(cudaStreamSynchronize(rank.stream));
      });
      group.expect_clean(in_a_graph ? 4 * rounds : rounds, [&](std::uint32_t i) {
        return std::to_string(count) + " elements, call " + std::to_string(i) +
               (in_a_graph ? " of a graph" : ", eager");
      });
    }
  }
}

// Ours feeds NCCL's, NCCL's feeds ours: each must see all that the other has written.
TEST(HandOverGpuTwoGpus, OneFeedsTheOtherOnWindows) {
  Group group(kTwo, test_options(), kBufferBytes);
  ASSERT_TRUE(group.ok());
  const Windows windows(group);
  const auto rounds = static_cast<std::uint32_t>(scaled(300, 4));
  std::uint64_t checks = 0;
  for (const std::uint64_t count :
       {std::uint64_t{1000}, std::uint64_t{64} * 1024, std::uint64_t{700} * 1000}) {
    group.run([&](Rank& rank) {
      for (std::uint32_t i = 0; i < rounds; ++i) {
        // The largest of the largest is the largest.
        const Work work =
            rank.work({DataType::i32, ReduceOp::max, Values::general, i}, count, false, 0, 0, i);
        const CallOptions first = i % 2 == 0 ? CallOptions() : by_nccl();
        const CallOptions then = i % 2 == 0 ? by_nccl() : CallOptions();
        ASSERT_CUDA(
            prepare_late(work, (static_cast<std::uint32_t>(rank.rank) + i) % 2 * kLateNs, rank.stream));
        ASSERT_OK(rank.all_reduce(work, first));
        for (const CallOptions& options : {then, first}) {
          ASSERT_OK(rank.comm->all_reduce(work.recv, work.recv, count, DataType::i32, ReduceOp::max,
                                          rank.stream, options));
        }
        ASSERT_CUDA(check_and_overwrite(work, rank.report, rank.stream));
        group.keep_pace(i);
      }
    });
    checks += rounds;
  }
  group.expect_clean(checks);
}

// Types of 1 and 2 bytes at addresses that are no multiple of 4, small: what NCCL may do wrong is not given
// to it.
TEST(HandOverGpuTwoGpus, SmallTypesAtOddAddressesOfWindows) {
  ::setenv("NEARLIGHT_FORCE_PATH", "nccl", 1);
  Group group(kTwo, test_options(), kBufferBytes);
  ::unsetenv("NEARLIGHT_FORCE_PATH");
  ASSERT_TRUE(group.ok());
  const Windows windows(group);
  std::uint32_t checks = 0;
  for (const DataType type : {DataType::u8, DataType::i8, DataType::f16, DataType::bf16}) {
    for (const std::uint64_t bytes :
         {std::uint64_t{2}, std::uint64_t{62}, std::uint64_t{4098}, std::uint64_t{65538}}) {
      for (const std::size_t offset : {std::size_t{0}, std::size_t{2}, std::size_t{6}}) {
        group.run([&](Rank& rank) {
          const std::size_t own = rank.rank == 0 ? offset : 0;
          ASSERT_OK(
              rank.prepare_reduce_check(rank.work({type, ReduceOp::sum, Values::general, checks},
                                                  bytes / element_bytes(type), false, own, own, checks)));
        });
        ++checks;
      }
    }
  }
  group.expect_clean(checks);
}

// ---- what is refused ----------------------------------------------------------------------------------

TEST(HandOverGpuTwoGpus, AFailedCommunicatorHandsNothingOver) {
  Group group(kTwo, test_options(), kBufferBytes);
  ASSERT_TRUE(group.ok());
  group.run([&](Rank& rank) {
    rank.comm->abort();
    EXPECT_EQ(rank.all_reduce(rank.work({DataType::i32, ReduceOp::sum, Values::general, 0}, 1 << 18, false),
                              by_nccl())
                  .code(),
              Code::aborted);
  });
  for (Rank& rank : group.ranks()) rank.comm.reset();  // or the group would expect it to be well
}

TEST(HandOverGpuTwoGpus, WithoutAnAttachedOneItIsRefused) {
  Group group({Memory::cuda_vmm, 2, 2}, test_options(), kBufferBytes);
  ASSERT_TRUE(group.ok());
  group.run([&](Rank& rank) {
    const Status status = rank.all_reduce(
        rank.work({DataType::i32, ReduceOp::sum, Values::general, 0}, 1000, false), by_nccl());
    EXPECT_EQ(status.code(), Code::invalid_argument);
    EXPECT_THAT(status.text(), HasSubstr("algorithm: nccl"));
  });
}

}  // namespace
}  // namespace nearlight::test
