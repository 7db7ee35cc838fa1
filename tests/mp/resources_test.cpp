// What a communicator takes, it gives back: descriptors, mappings, threads, processes.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cerrno>
#include <memory>
#include <thread>
#include <vector>

#include "runtime/create.hpp"
#include "tests/mp/faulty_exchange.hpp"
#include "tests/mp/kinds.hpp"
#include "tests/support/held.hpp"

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

}  // namespace
}  // namespace nearlight::test
