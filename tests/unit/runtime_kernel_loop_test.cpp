#include "runtime/kernel_loop.hpp"

#include <gtest/gtest.h>

#include <numeric>

#include "tests/support/ranks.hpp"

namespace nearlight::runtime {
namespace {

using test::Kind;
using test::Problems;

TEST(KernelLoop, RunsAsOftenAsItIsToldAndTimesEachSample) {
  EXPECT_EQ(test::run_communicators(
                Kind::threads, 2, test::patient(),
                [](Communicator& comm, Exchange&, Problems& trouble) {
                  // Each call doubles the value, so the value says how often it was called.
                  std::int32_t value = 1;
                  std::vector<double> op_ns(3, -1.0);
                  const std::int64_t begin_ns = test::clock_ns();
                  const Status status =
                      run_all_reduce_loop(comm, &value, &value, 1, DataType::i32, ReduceOp::sum,
                                          {.samples = 5, .chain = 4}, op_ns, nullptr);
                  const auto took_ns = static_cast<double>(test::clock_ns() - begin_ns);
                  if (!status.ok()) return trouble.add("%s", status.to_string().c_str());
                  if (value != 1 << 20) trouble.add("not 20 calls: %d", value);
                  if (op_ns.size() != 5) return trouble.add("%zu samples", op_ns.size());
                  for (const double ns : op_ns) {
                    if (!(ns > 0)) trouble.add("a sample of %g ns", ns);
                  }
                  const double sum_ns = std::accumulate(op_ns.begin(), op_ns.end(), 0.0) * 4;
                  if (sum_ns > took_ns)
                    trouble.add("the samples add up to %g ns, the loop took %g", sum_ns, took_ns);
                }),
            "");
}

TEST(KernelLoop, ChecksItsPlan) {
  EXPECT_EQ(test::run_communicators(Kind::threads, 1, test::patient(),
                                    [](Communicator& comm, Exchange&, Problems& trouble) {
                                      float value = 1;
                                      std::vector<double> op_ns;
                                      const auto run = [&](const void* send, std::size_t count,
                                                           LoopPlan plan) {
                                        return run_all_reduce_loop(comm, send, &value, count, DataType::f32,
                                                                   ReduceOp::sum, plan, op_ns, nullptr);
                                      };
                                      test::expect_failure(trouble, "no samples", run(&value, 1, {0, 1}),
                                                           Code::invalid_argument, {"plan"});
                                      test::expect_failure(trouble, "no chain", run(&value, 1, {1, 0}),
                                                           Code::invalid_argument, {"plan"});
                                      test::expect_failure(trouble, "no elements", run(&value, 0, {1, 1}),
                                                           Code::invalid_argument, {"count"});
                                      test::expect_failure(trouble, "no send", run(nullptr, 1, {1, 1}),
                                                           Code::invalid_argument, {"send"});
                                    }),
            "");
}

TEST(KernelLoop, EndsWithTheCommunicator) {
  EXPECT_EQ(test::run_communicators(Kind::threads, 2, test::patient(),
                                    [](Communicator& comm, Exchange&, Problems& trouble) {
                                      comm.abort();
                                      float value = 1;
                                      std::vector<double> op_ns;
                                      test::expect_failure(
                                          trouble, "after abort",
                                          run_all_reduce_loop(comm, &value, &value, 1, DataType::f32,
                                                              ReduceOp::sum, {1000, 1}, op_ns, nullptr),
                                          Code::aborted, {});
                                    }),
            "");
}

}  // namespace
}  // namespace nearlight::runtime
