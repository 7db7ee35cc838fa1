// Moving calls to another path and back while a communicator runs, on CPU ranks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>

#include "runtime/create.hpp"
#include "tests/support/ranks.hpp"

namespace nearlight::runtime {
namespace {

using test::Kind;
using test::Problems;

Status sum_of_ones(Communicator& comm, std::size_t count, Problems& trouble) {
  std::vector<float> data(count, 1);
  NL_TRY(comm.all_reduce(data.data(), data.data(), count, DataType::f32, ReduceOp::sum, nullptr));
  for (const float value : data) {
    if (value != static_cast<float>(comm.nranks())) trouble.add("a wrong sum");
  }
  return {};
}

TEST(SetPath, MovesCallsAndBack) {
  const auto problems = test::run_communicators(
      Kind::threads, 3, test::patient(), [](Communicator& comm, Exchange&, Problems& trouble) {
        const std::string usual = comm.explain_all_reduce(1000, DataType::f32, ReduceOp::sum).reason;
        for (int round = 0; round < 20; ++round) {
          for (const char* const path : {"ll", "simple", "sentinel", "ll128", "two_shot", ""}) {
            if (const Status status = comm.set_path(path); !status.ok())
              trouble.add("%s", status.to_string().c_str());
            const route::Route route = comm.explain_all_reduce(1000, DataType::f32, ReduceOp::sum);
            const std::string taken = route.algorithm == route::Algorithm::two_shot ? name_of(route.algorithm)
                                                                                    : name_of(route.protocol);
            if (*path != 0 && taken != path) trouble.add("%s instead of %s", taken.c_str(), path);
            const bool by_call = std::string(route.reason).find("nearlightCommSetPath") != std::string::npos;
            if (by_call != (*path != 0)) trouble.add("the reason is %s", route.reason);
            if (*path == 0 && route.reason != usual) trouble.add("not back: %s", route.reason);
            if (const Status status = sum_of_ones(comm, 1000, trouble); !status.ok())
              trouble.add("%s", status.to_string().c_str());
          }
        }
      });
  EXPECT_EQ(problems, "");
}

TEST(SetPath, NamesThePathsThereAre) {
  const auto problems = test::run_communicators(
      Kind::threads, 2, test::patient(), [](Communicator& comm, Exchange&, Problems& trouble) {
        test::expect_failure(
            trouble, "set_path", comm.set_path("LL"), Code::invalid_argument,
            {"path is \"LL\"",
             "ll, simple, sentinel, ll128, two_shot, two_shot_atomic, nccl, staged, fallback"});
        if (const Status status = sum_of_ones(comm, 10, trouble); !status.ok())
          trouble.add("%s", status.to_string().c_str());
      });
  EXPECT_EQ(problems, "");
}

TEST(SetPath, InCheckModeTheRankThatDiffersIsNamed) {
  Options options = test::patient();
  options.check = true;
  const auto problems = test::run_communicators(
      Kind::threads, 3, options, [](Communicator& comm, Exchange&, Problems& trouble) {
        if (comm.rank() == 1) static_cast<void>(comm.set_path("simple"));
        test::expect_failure(trouble, "the call", sum_of_ones(comm, 10, trouble), Code::invalid_usage,
                             {"the forced path is not set on rank 0, simple on rank 1"});
        // Nothing was sent.
        static_cast<void>(comm.set_path(""));
        if (const Status status = sum_of_ones(comm, 10, trouble); !status.ok())
          trouble.add("%s", status.to_string().c_str());
      });
  EXPECT_EQ(problems, "");
}

// Another thread may ask meanwhile.
TEST(SetPath, WhileAnotherThreadAsks) {
  const auto problems = test::run_communicators(
      Kind::threads, 2, test::patient(), [](Communicator& comm, Exchange&, Problems& trouble) {
        std::atomic<bool> over = false;
        std::thread asking([&] {
          while (!over) static_cast<void>(comm.explain_all_reduce(100, DataType::f32, ReduceOp::sum));
        });
        for (int i = 0; i < 500; ++i) {
          static_cast<void>(comm.set_path(i % 2 == 0 ? "simple" : "two_shot"));
          if (!sum_of_ones(comm, 20, trouble).ok()) trouble.add("a call failed");
        }
        over = true;
        asking.join();
      });
  EXPECT_EQ(problems, "");
}

}  // namespace
}  // namespace nearlight::runtime
