// The benchmark on real GPUs: what a late rank does to it, two jobs at once, how NCCL was set up, and peers
// that want a process for each GPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "cli/bench/run_cuda.hpp"
#include "cli/exit_code.hpp"
#include "cli/peers/beside.hpp"
#include "cli/results.hpp"
#include "tests/support/gpu_support.hpp"

namespace nearlight::test {
namespace {

using bench::CudaJob;
using bench::Measured;
using cli::Mode;
using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;

CudaJob job_of(std::vector<int> devices, Mode mode, const std::vector<std::size_t>& sizes) {
  CudaJob job;
  job.devices = std::move(devices);
  job.comm.timeout = patient(std::chrono::seconds(20));
  job.plan.mode = mode;
  job.plan.chain = mode == Mode::graph ? 20 : 1;
  job.plan.samples = static_cast<std::size_t>(scaled(200, 10));
  job.plan.rounds = 5;
  job.plan.in_place = false;
  for (const std::size_t bytes : sizes) job.cases.push_back({bytes / 4, DataType::f32, ReduceOp::sum});
  return job;
}

Result<bench::CudaResult> run(const CudaJob& job) {
  auto result = bench::run_cuda(job);
  EXPECT_TRUE(result.ok()) << result.status().to_string();
  if (result.ok()) {
    for (const Measured& entry : result->measured) EXPECT_EQ(entry.wrong, 0u) << entry.first_wrong;
  }
  return result;
}

void expect_lateness_to_be_skew(const std::vector<int>& devices, Mode mode) {
  double alone_us = 0;
  for (const int late_us : {0, 50, 250, 1000}) {
    CudaJob job = job_of(devices, mode, {128});
    job.plan.late = std::chrono::microseconds(late_us);
    const auto result = run(job);
    ASSERT_TRUE(result.ok());
    const auto times = result->measured[0].samples.summary(), skew = result->measured[0].skew.summary();
    ASSERT_TRUE(times.ok() && skew.ok());
    std::printf("  %s, %zu GPUs, %d us late: p50 %.2f us, skew %.1f us\n", name_of(mode),
                devices[0] == devices[1] ? std::size_t{1} : std::size_t{2}, late_us, times->p50_us,
                skew->p50_us);
    if (late_us == 0) alone_us = times->p50_us;
    // A chain of 20 would hide a twentieth of what is waited for: 50 us late would still be 2.5 us more.
    const double slack_us = std::max(0.25 * alone_us, mode == Mode::graph ? 1.0 : 10.0);
    EXPECT_LT(times->p50_us, alone_us + slack_us / test_scale()) << late_us;
    EXPECT_GE(skew->p50_us, 0.9 * late_us);
  }
}

TEST(BenchGpu, ALateRankIsSkewAndNotLatency) { expect_lateness_to_be_skew({0, 0}, Mode::graph); }
TEST(BenchGpuTwoGpus, ALateRankIsSkewAndNotLatency) {
  expect_lateness_to_be_skew({0, 1}, Mode::graph);
  expect_lateness_to_be_skew({0, 1}, Mode::eager);
}

void expect_two_jobs(const std::vector<int>& devices, const std::vector<std::size_t>& sizes) {
  CudaJob job = job_of(devices, Mode::graph, sizes);
  const auto alone = run(job);
  job.jobs = 2;
  const auto both = run(job);
  ASSERT_TRUE(alone.ok() && both.ok());
  ASSERT_EQ(both->measured.size(), sizes.size());
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    EXPECT_EQ(both->measured[i].jobs, 2);
    const auto before = alone->measured[i].samples.summary(), after = both->measured[i].samples.summary();
    ASSERT_TRUE(before.ok() && after.ok());
    std::printf("  %zu B: alone %.2f us, beside another job %.2f us (p99 %.2f)\n", sizes[i], before->p50_us,
                after->p50_us, after->p99_us);
    // Side by side, not one after the other's chain of twice as many.
    EXPECT_LT(after->p50_us, 10 * before->p50_us / test_scale());
  }
}

TEST(BenchGpu, TwoJobsAtATime) { expect_two_jobs({0, 0}, {128, 4096}); }
TEST(BenchGpuTwoGpus, TwoJobsAtATime) { expect_two_jobs({0, 1}, {128, 64 << 10, 1 << 20}); }

// What tracing and what limits cost. The bounds are far above what they should cost: a measurement that is
// meant to be kept takes `nearlight bench --paired`.
void expect_costs(const std::vector<int>& devices) {
  for (const bench::Paired paired : {bench::Paired::trace, bench::Paired::deadline}) {
    const bool traces = paired == bench::Paired::trace;
    CudaJob job = job_of(devices, traces ? Mode::graph : Mode::kernel, {128, 16 << 10});
    job.paired = paired;
    const auto result = run(job);
    ASSERT_TRUE(result.ok());
    ASSERT_EQ(result->measured.size(), 4u);
    for (std::size_t i = 0; i < 4; i += 2) {
      EXPECT_EQ(result->measured[i].impl, "nearlight");
      EXPECT_EQ(result->measured[i + 1].impl, bench::impl_of(paired));
      ASSERT_TRUE(result->measured[i + 1].cost.has_value());
      const cli::Cost cost = *result->measured[i + 1].cost;
      std::printf("  %s, %zu B: %.2f %% (%.2f to %.2f)\n", name_of(paired), result->measured[i].what.bytes(),
                  cost.percent, cost.low_percent, cost.high_percent);
      EXPECT_GT(cost.percent, -30 / test_scale());
      EXPECT_LT(cost.percent, 50 / test_scale());
    }
  }
}

TEST(BenchGpu, WhatTracingMessagesCosts) {
  CudaJob job = job_of({0, 0}, Mode::graph, {128, 16 << 10});
  job.paired = bench::Paired::trace;
  for (auto& one : job.cases) one.collective = Collective::send_recv;
  const auto result = run(job);
  ASSERT_TRUE(result.ok());
  ASSERT_EQ(result->measured.size(), 4u);
  for (std::size_t i = 1; i < 4; i += 2) {
    ASSERT_TRUE(result->measured[i].cost.has_value());
    const cli::Cost cost = *result->measured[i].cost;
    std::printf("  send_recv, %zu B: %.2f %% (%.2f to %.2f)\n", result->measured[i].what.bytes(),
                cost.percent, cost.low_percent, cost.high_percent);
    EXPECT_GT(cost.percent, -30 / test_scale());
    EXPECT_LT(cost.percent, 100 / test_scale());
  }
}
TEST(BenchGpu, WhatTracingAndLimitsCost) { expect_costs({0, 0}); }
TEST(BenchGpuTwoGpus, WhatTracingAndLimitsCost) { expect_costs({0, 1}); }

TEST(BenchGpu, APairOfWhatIsNotTracedIsRefused) {
  CudaJob job = job_of({0, 0}, Mode::graph, {128});
  job.paired = bench::Paired::trace;
  job.cases = {{32, DataType::i32, ReduceOp::sum}};
  const auto result = bench::run_cuda(job);
  EXPECT_EQ(result.status().code(), Code::invalid_argument);
  EXPECT_THAT(result.status().text(), HasSubstr("nothing is traced"));
}

// The product alone, fused and in a kernel of its own, each with a result that is checked.
// `collective`: all_reduce, or all_gather, whose vectors have `columns` elements of all ranks together.
void expect_products(Collective collective, const std::vector<int>& devices, std::size_t rows,
                     std::size_t columns, std::size_t tokens) {
  const bool gathers = collective == Collective::all_gather;
  for (const Mode mode : {Mode::graph, Mode::eager}) {
    CudaJob job = job_of(devices, mode, {});
    job.plan.in_place = true;
    job.cases = {{(gathers ? columns : rows) * tokens, DataType::bf16, ReduceOp::sum, collective}};
    job.gemv = gathers ? rows : columns;
    job.tokens = tokens;
    const auto result = run(job);
    ASSERT_TRUE(result.ok());
    std::vector<std::string> impls;
    for (const Measured& entry : result->measured) {
      impls.push_back(entry.impl);
      const auto times = entry.samples.summary();
      ASSERT_TRUE(times.ok());
      std::printf("  %s, %zu x %zu, %zu tokens: %.2f us\n", entry.impl.c_str(), rows, columns, tokens,
                  times->p50_us);
    }
    const std::vector<std::string> each =
        gathers ? std::vector<std::string>{"nearlight", "nearlight_gemv", "nearlight_all_gather_gemv",
                                           "nearlight_then_gemv"}
                : std::vector<std::string>{"nearlight", "nearlight_gemv", "nearlight_gemv_all_reduce",
                                           "nearlight_after_gemv"};
    std::vector<std::string> both = each;  // out of place and in place
    both.insert(both.end(), each.begin(), each.end());
    EXPECT_EQ(impls, both);
    const cli::ResultFile file =
        bench::file_of({"bench"}, result->setting, bench::rows_of(result->measured, result->setting, mode));
    EXPECT_THAT(cli::find_faults(file), IsEmpty());
  }
}
TEST(BenchGpu, ProductsWithTheirAllReduce) {
  expect_products(Collective::all_reduce, {0, 0}, 1024, 512, 2);
  expect_products(Collective::all_reduce, {0, 0}, 8192, 4096, 1);
  // Its preparation has copies enough to fill a copy queue.
  expect_products(Collective::all_reduce, {0, 0}, 8192, 4096, 16);
}
TEST(BenchGpuTwoGpus, ProductsWithTheirAllReduce) {
  expect_products(Collective::all_reduce, {0, 1}, 8192, 4096, 1);
  expect_products(Collective::all_reduce, {0, 1}, 1024, 4096, 16);
}
// Of fewer rows than columns, so that several turns look at all of them, and of more.
TEST(BenchGpu, ProductsOfGatheredVectors) {
  expect_products(Collective::all_gather, {0, 0}, 1024, 4096, 2);
  expect_products(Collective::all_gather, {0, 0}, 8192, 4096, 1);
}
TEST(BenchGpuTwoGpus, ProductsOfGatheredVectors) {
  expect_products(Collective::all_gather, {0, 1}, 1024, 4096, 16);
  expect_products(Collective::all_gather, {0, 1}, 7168, 8192, 1);
}

TEST(BenchGpu, TwoJobsInEagerModeAreRefused) {
  CudaJob job = job_of({0, 0}, Mode::eager, {128});
  job.jobs = 2;
  const auto result = bench::run_cuda(job);
  EXPECT_EQ(result.status().code(), Code::unsupported);
  EXPECT_THAT(result.status().text(), HasSubstr("graph"));
}

TEST(BenchGpuTwoGpus, NcclInGraphsAndEagerTellsHowItWasSetUp) {
  for (const Mode mode : {Mode::graph, Mode::eager}) {
    CudaJob job = job_of({0, 1}, mode, {128});
    job.peers = {"nccl", "nccl_sym"};
    const auto result = run(job);
    ASSERT_TRUE(result.ok());
    ASSERT_EQ(result->measured.size(), 3u);
    EXPECT_THAT(result->setting.peers.at("nccl"), HasSubstr("NCCL " + result->setting.machine.nccl));
    EXPECT_THAT(result->setting.peers.at("nccl"), HasSubstr("not registered"));
    EXPECT_THAT(result->setting.peers.at("nccl_sym"), HasSubstr("NCCL_WIN_COLL_SYMMETRIC"));
    const cli::ResultFile file =
        bench::file_of({"bench"}, result->setting, bench::rows_of(result->measured, result->setting, mode));
    EXPECT_EQ(file.peers, result->setting.peers);
    EXPECT_THAT(cli::find_faults(file), IsEmpty());
  }
}

// Runs the program that lies beside this one in the bundle.
void expect_rows_of(const std::string& against, const std::vector<std::string>& impls) {
  const std::string program = peers::beside_this_program("nearlight");
  ASSERT_EQ(access(program.c_str(), X_OK), 0) << program << " is not there";
  const std::string path = testing::TempDir() + "nearlight-" + std::to_string(getpid()) + ".json";
  const std::string command = "timeout -k 5 300 '" + program +
                              "' bench all_reduce -g 2 -d bfloat16 -b 128 -e 64K -f 512 -n 200 --in-place 0"
                              " --against " +
                              against + " --json '" + path + "'";
  const int status = std::system(command.c_str());
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == cli::kExitUnfit) GTEST_SKIP() << against << " is not there: see above";
  ASSERT_EQ(WEXITSTATUS(status), cli::kExitOk);
  const auto file = cli::read_results(path);
  unlink(path.c_str());
  ASSERT_TRUE(file.ok()) << file.status().to_string();
  EXPECT_THAT(cli::find_faults(*file), IsEmpty());
  for (const std::string& impl : impls) {
    EXPECT_THAT(file->rows, Contains(testing::Field(&cli::ResultRow::impl, impl)));
    if (impl == cli::kOwnImpl) continue;
    EXPECT_EQ(file->peers.count(impl), 1u) << impl;
  }
  for (const cli::ResultRow& row : file->rows) EXPECT_EQ(row.wrong, 0u) << row.impl;
}

TEST(BenchPeersTwoGpus, PyTorchsSymmetricMemory) {
  expect_rows_of("nccl,nccl_sym,torch_symm_mem", {"nearlight", "nccl", "nccl_sym", "torch_symm_mem_one_shot",
                                                  "torch_symm_mem_two_shot", "torch_nccl"});
}
TEST(BenchPeersTwoGpus, Nvshmem) { expect_rows_of("nccl,nvshmem", {"nearlight", "nccl", "nvshmem"}); }

}  // namespace
}  // namespace nearlight::test
