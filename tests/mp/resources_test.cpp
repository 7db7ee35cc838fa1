// What a communicator takes, it gives back: descriptors, mappings, threads, processes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <memory>
#include <thread>
#include <vector>

#include "bootstrap/process_group.hpp"
#include "runtime/create.hpp"
#include "tests/mp/faulty_exchange.hpp"
#include "tests/support/held.hpp"
#include "tests/support/kinds.hpp"

namespace nearlight::test {
namespace {

using namespace std::chrono_literals;

using Resources = ByKind;
INSTANTIATE_TEST_SUITE_P(Kinds, Resources, testing::ValuesIn(kinds()), kind_name);

void expect_no_children() {
  EXPECT_EQ(::waitpid(-1, nullptr, WNOHANG), -1);
  EXPECT_EQ(errno, ECHILD);
}

// 900 kB of scratch a rank: a leak of one a cycle shows.
runtime::Options options() {
  runtime::Options options = patient();
  options.slots = 1024;
  options.chunk_bytes = 128 * 1024;
  return options;
}

// 50 times in one group.
TEST_P(Resources, CyclesOfUse) {
  const auto problems = run_ranks(GetParam(), 3, [](Exchange& exchange, Problems& trouble) {
    Held before{};
    for (int cycle = 0; cycle < 55; ++cycle) {
      // The first cycles warm up the allocator.
      if (cycle == 5) {
        meet(exchange, trouble);
        if (exchange.rank() == 0) before = Held::now();
        meet(exchange, trouble);
      }
      auto comm = runtime::create_host(exchange, options());
      if (!comm.ok()) return trouble.add("cycle %d: %s", cycle, comm.status().to_string().c_str());
      float value = 1;
      const Status status = (*comm)->all_reduce(&value, &value, 1, DataType::f32, ReduceOp::sum, nullptr);
      if (!status.ok() || value != 3)
        trouble.add("cycle %d: %s, %g", cycle, status.to_string().c_str(), static_cast<double>(value));
      meet(exchange, trouble);
    }
    meet(exchange, trouble);  // all have destroyed theirs
    if (exchange.rank() == 0) expect_same(before, {.warm = true}, trouble);
    meet(exchange, trouble);
  });
  EXPECT_EQ(problems, "");
  expect_no_children();
}

// 50 groups.
TEST_P(Resources, CyclesOfGroups) {
  const auto cycle = [&] {
    return run_communicators(
        GetParam(), 2, options(), [](runtime::Communicator& comm, Exchange&, Problems& trouble) {
          float value = 1;
          const Status status = comm.all_reduce(&value, &value, 1, DataType::f32, ReduceOp::sum, nullptr);
          if (!status.ok() || value != 2) trouble.add("%s", status.to_string().c_str());
        });
  };
  for (int i = 0; i < 5; ++i) ASSERT_EQ(cycle(), "");
  const Held before = Held::now();
  for (int i = 0; i < 50; ++i) ASSERT_EQ(cycle(), "") << "cycle " << i;
  Problems problems;
  expect_same(before, {.warm = true}, problems);
  EXPECT_EQ(problems.text(), "");
  expect_no_children();
}

// A thousand times: what a cycle left behind, were it a kilobyte, would show.
TEST_P(Resources, AThousandCycles) {
  constexpr int kWarm = 100, kCycles = 1000 / kSlowDown;
  runtime::Options small = patient();
  small.slots = 32;
  small.chunk_bytes = 256;
  small.packets = 16;
  const auto problems = run_ranks(GetParam(), 2, [&](Exchange& exchange, Problems& trouble) {
    Held before{};
    for (int cycle = 0; cycle < kWarm + kCycles; ++cycle) {
      if (cycle == kWarm) {
        meet(exchange, trouble);
        if (exchange.rank() == 0 || GetParam() == Kind::processes) before = Held::now();
        meet(exchange, trouble);
      }
      auto comm = runtime::create_host(exchange, small);
      if (!comm.ok()) return trouble.add("cycle %d: %s", cycle, comm.status().to_string().c_str());
      std::int32_t value = cycle;
      const Status status = (*comm)->all_reduce(&value, &value, 1, DataType::i32, ReduceOp::sum, nullptr);
      if (!status.ok() || value != 2 * cycle)
        return trouble.add("cycle %d: %s, %d", cycle, status.to_string().c_str(), value);
    }
    meet(exchange, trouble);  // all have destroyed theirs
    if (exchange.rank() == 0 || GetParam() == Kind::processes)
      expect_same(before, {.warm = true, .more_kb = 1024}, trouble);
    meet(exchange, trouble);
  });
  EXPECT_EQ(problems, "");
  expect_no_children();
}

// A meeting, a communicator, a sum of `value` over the ranks, and the end of them.
void meet_and_reduce(const bootstrap::GroupPlace& place, std::int32_t value, Problems& trouble) {
  auto exchange = bootstrap::join_process_group(place, Deadline::after(120s));
  if (!exchange.ok()) return trouble.add("value %d: %s", value, exchange.status().to_string().c_str());
  runtime::Options small = patient();
  small.slots = 32;
  small.chunk_bytes = 256;
  small.packets = 16;
  const auto comm = runtime::create_host(std::move(*exchange), small);
  if (!comm.ok()) return trouble.add("value %d: %s", value, comm.status().to_string().c_str());
  std::int32_t sum = value;
  const Status status = (*comm)->all_reduce(&sum, &sum, 1, DataType::i32, ReduceOp::sum, nullptr);
  if (!status.ok() || sum != place.nranks * value)
    trouble.add("value %d: %s, %d", value, status.to_string().c_str(), sum);
}

// The same with a meeting each time, under one key: names and pidfds go as well.
TEST(ResourcesOfMeetings, AThousandCycles) {
  constexpr int kWarm = 100, kCycles = 1000 / kSlowDown, kRanks = 2;
  const std::string key = fresh_key();
  Problems problems;
  const auto cycles = [&](int count) {
    std::vector<Problems> troubles(kRanks);
    std::vector<std::thread> ranks;
    for (int rank = 0; rank < kRanks; ++rank) {
      ranks.emplace_back([&, rank] {
        Problems& trouble = troubles[static_cast<std::size_t>(rank)];
        for (int cycle = 0; cycle < count && trouble.none(); ++cycle) {
          meet_and_reduce({rank, kRanks, key}, cycle, trouble);
        }
      });
    }
    for (std::thread& rank : ranks) rank.join();
    for (const Problems& trouble : troubles) {
      if (!trouble.none()) problems.add("%s", trouble.text().c_str());
    }
  };
  cycles(kWarm);
  const Held before = Held::now();
  cycles(kCycles);
  expect_same(before, {.warm = true, .more_kb = 1024}, problems);
  EXPECT_EQ(problems.text(), "");
}

// Creation goes wrong on one rank at each single step: it fails on all of them, in time, and leaves nothing
// behind.
TEST_P(Resources, FailedCreations) {
  Held before{};
  int last_step = 0;
  for (int round = 0; round < 3; ++round) {
    for (int step = 0;; ++step) {
      ASSERT_LT(step, 100) << "creation has no end of steps";
      struct Outcome {
        std::atomic<int> created, failed;
      };
      const Shared<Outcome> outcome;
      const auto problems = run_ranks(GetParam(), 3, [&](Exchange& exchange, Problems& trouble) {
        using Fault = FaultyExchange::Fault;
        FaultyExchange faulty(exchange, exchange.rank() == 1 ? Fault::wrong_call : Fault::none, step);
        // The C library keeps the stack and the heap of a thread that has ended for the next one: a first
        // thread first, or the communicator's own would look like a leak.
        std::thread([] {
          std::vector<char>(100'000, 'x').swap(*std::make_unique<std::vector<char>>());
        }).join();
        const Held at_first = Held::now();
        {
          auto comm = runtime::create_host(faulty, options());
          ++(comm.ok() ? outcome->created : outcome->failed);
          if (!comm.ok() && comm.status().text().empty()) trouble.add("no reason is given");
        }
        // Threads see each other's descriptors; processes only their own.
        if (GetParam() == Kind::processes) expect_same(at_first, {}, trouble);
      });
      EXPECT_EQ(problems, "") << "step " << step;
      if (outcome->created == 3) {
        last_step = step;
        break;
      }
      EXPECT_EQ(outcome->failed, 3) << "step " << step
                                    << ": some ranks have a communicator and some have none";
    }
    if (round == 0) before = Held::now();
  }
  EXPECT_GT(last_step, 3);
  Problems problems;
  expect_same(before, {.warm = true}, problems);
  EXPECT_EQ(problems.text(), "");
  expect_no_children();
}

// Communicators that failed, and some that were never used, go as well.
TEST_P(Resources, FailedCommunicators) {
  const auto cycle = [&](int missing) {
    return run_ranks(GetParam(), 3, [&](Exchange& exchange, Problems& trouble) {
      runtime::Options short_one = options();
      short_one.timeout = 10ms;
      auto failing = runtime::create_host(exchange, short_one);
      auto unused = runtime::create_host(exchange, options());
      if (!failing.ok() || !unused.ok()) return trouble.add("not created");
      float value = 1;
      if (exchange.rank() != missing) {
        const Status status =
            (*failing)->all_reduce(&value, &value, 1, DataType::f32, ReduceOp::sum, nullptr);
        expect_failure(trouble, "a rank is missing", status, Code::timeout, {});
      }
      meet(exchange, trouble);
    });
  };
  for (int i = 0; i < 3; ++i) ASSERT_EQ(cycle(i), "");
  const Held before = Held::now();
  for (int i = 0; i < 12; ++i) ASSERT_EQ(cycle(i % 3), "");
  Problems problems;
  expect_same(before, {.warm = true}, problems);
  EXPECT_EQ(problems.text(), "");
  expect_no_children();
}

// Groups that meet and create at the same time, many times: none takes another's descriptors.
TEST(ResourcesOfMeetings, FourGroupsAtOnce) {
  constexpr int kGroups = 4, kCycles = 64 / kSlowDown, kRanks = 2;
  const Held before = Held::now();
  std::vector<Problems> troubles(kGroups * kRanks);
  std::vector<std::thread> threads;
  for (int group = 0; group < kGroups; ++group) {
    const std::string key = fresh_key();
    for (int rank = 0; rank < kRanks; ++rank) {
      threads.emplace_back([&, group, rank, key] {
        Problems& trouble = troubles[static_cast<std::size_t>(group * kRanks + rank)];
        for (int cycle = 0; cycle < kCycles && trouble.none(); ++cycle)
          meet_and_reduce({rank, kRanks, key}, group + 10 * cycle, trouble);
      });
    }
  }
  for (std::thread& thread : threads) thread.join();
  Problems problems;
  for (const Problems& trouble : troubles) {
    if (!trouble.none()) problems.add("%s", trouble.text().c_str());
  }
  expect_same(before, {}, problems);
  EXPECT_EQ(problems.text(), "");
}

// What all of these tests look with sees each thing that could be left behind.
TEST(ResourcesOfTests, WhatIsLeftIsSeen) {
  const Held before = Held::now();
  const auto complaints = [&](bool warm) {
    Problems problems;
    expect_same(before, {.warm = warm, .more_kb = 1024, .patience = 0ms}, problems);
    return problems.text();
  };
  EXPECT_EQ(complaints(false), "");
  {
    const UniqueFd memory(::memfd_create("nearlight-test", MFD_CLOEXEC));
    EXPECT_THAT(complaints(false), testing::HasSubstr("descriptors"));
    ASSERT_EQ(::ftruncate(memory.get(), 4096), 0);
    void* const mapped = ::mmap(nullptr, 4096, PROT_READ, MAP_SHARED, memory.get(), 0);
    EXPECT_THAT(complaints(false), testing::HasSubstr("mappings"));
    ::munmap(mapped, 4096);
  }
  {
    const std::string name = '\0' + bootstrap::meeting_name(fresh_key());
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    name.copy(address.sun_path, name.size());
    const UniqueFd listener(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    const auto bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size());
    ASSERT_EQ(::bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), bytes), 0);
    EXPECT_THAT(complaints(false), testing::HasSubstr("socket names"));
  }
  std::atomic<bool> over{false};
  std::thread thread([&] { wait_until([&] { return over.load(); }, 60s); });
  EXPECT_THAT(complaints(false), testing::HasSubstr("threads"));
  over = true;
  thread.join();
  const std::vector<char> memory(8 << 20, 'x');
  if (kSlowDown == 1) {
    EXPECT_THAT(complaints(true), testing::HasSubstr("kB resident"));
  }
}

}  // namespace
}  // namespace nearlight::test
