// The speed-of-light probe on real GPUs: plausible, in time, nothing left behind.
#include <cuda_runtime_api.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <vector>

#include "cli/heap_pair.hpp"
#include "cli/results.hpp"
#include "cli/sol_heaps.hpp"
#include "memory/cuda_vmm_heap.hpp"
#include "probe/sol.hpp"
#include "tests/support/gpu_support.hpp"

namespace nearlight::test {
namespace {

using probe::Spread;
using testing::HasSubstr;

cli::HeapPair make_pair(int device_a, int device_b) {
  const int devices[2] = {device_a, device_b};
  auto pair = cli::make_heap_pair([&](Exchange& exchange, Deadline deadline) {
    return memory::create_cuda_vmm_heap(exchange, devices[exchange.rank()], probe::gpu_probe_bytes(),
                                        deadline);
  });
  EXPECT_TRUE(pair.ok()) << pair.status().to_string();
  return std::move(pair).value();
}

probe::GpuProbeTarget target_of(const cli::HeapPair& heaps, int device_a, int device_b) {
  probe::GpuProbeTarget target;
  const int devices[2] = {device_a, device_b};
  for (int rank = 0; rank < 2; ++rank) {
    const memory::HeapView& view = heaps.of(rank).view();
    target.ends[rank] = {devices[rank], view.base, view.stride, rank};
  }
  target.bytes = probe::gpu_probe_bytes();
  return target;
}

void expect_plausible(const probe::SolReport& report) {
  const double patience = 1 / test_scale();  // under a sanitizer
  EXPECT_GT(report.l2rtt_us, 0.02);
  EXPECT_LT(report.l2rtt_us, 2 * patience);
  EXPECT_GT(report.one_way_us, report.l2rtt_us);
  EXPECT_LT(report.one_way_us, 20 * patience);
  EXPECT_GT(report.sol_us, report.one_way_us);
  EXPECT_GT(report.remote_load_us.value(), report.l2rtt_us * 0.5);
  EXPECT_GT(report.store_gbs, 1);
  for (const auto& arrival :
       {report.arrival_relaxed_us, report.arrival_acquire_us, report.arrival_fence_us}) {
    EXPECT_GT(arrival.value(), report.l2rtt_us);
    EXPECT_LT(arrival.value(), 20 * patience);
  }
  EXPECT_GT(report.launch_floor_us.value(), 0.05);
  EXPECT_GT(report.launch_floor_pdl_us.value(), 0.05);
  EXPECT_GT(report.eager_floor_us.value(), report.launch_floor_us.value());
  EXPECT_LT(report.took_ms, 3000 * patience);
  for (const auto* spreads : {&report.l2rtt, &report.one_way, &report.sol, &report.remote_load}) {
    EXPECT_EQ(spreads->size(), 6u);  // three SMs, two directions
    for (const Spread& spread : *spreads) {
      EXPECT_EQ(spread.lines, probe::kDefaultLines) << spread.place;
      EXPECT_LE(spread.min_us, spread.p50_us) << spread.place;
      EXPECT_LE(spread.p50_us, spread.max_us) << spread.place;
      EXPECT_GT(spread.min_us, 0) << spread.place;
    }
  }
  std::set<std::string> places;
  for (const Spread& spread : report.l2rtt) places.insert(spread.place);
  EXPECT_GE(places.size(), 3u);
}

void expect_zero(const cli::HeapPair& heaps) {
  std::vector<char> bytes(probe::gpu_probe_bytes());
  for (int rank = 0; rank < 2; ++rank) {
    ASSERT_CUDA(cudaMemcpy(bytes.data(), heaps.of(rank).view().mine(), bytes.size(), cudaMemcpyDeviceToHost));
    EXPECT_TRUE(std::all_of(bytes.begin(), bytes.end(), [](char c) { return c == 0; })) << "rank " << rank;
  }
}

TEST(ProbeGpu, OneGpuIsPlausibleAndInTime) {
  const auto report = cli::measure_sol_on_gpus(0, 0);
  ASSERT_TRUE(report.ok()) << report.status().to_string();
  EXPECT_EQ(report->backend, "gpu_single");
  expect_plausible(*report);
}

TEST(ProbeGpu, TwoGpusArePlausibleAndInTime) {
  const auto report = cli::measure_sol_on_gpus(0, 1);
  ASSERT_TRUE(report.ok()) << report.status().to_string();
  EXPECT_EQ(report->backend, "gpu");
  expect_plausible(*report);
}

TEST(ProbeGpu, TwoRunsAgree) {
  const auto first = cli::measure_sol_on_gpus(0, 0);
  const auto second = cli::measure_sol_on_gpus(0, 0);
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_NEAR(second->l2rtt_us / first->l2rtt_us, 1, 0.15 / test_scale());
  EXPECT_NEAR(second->one_way_us / first->one_way_us, 1, 0.25 / test_scale());
}

TEST(ProbeGpu, LeavesZerosAndTheCurrentDevice) {
  ASSERT_CUDA(cudaSetDevice(0));
  const cli::HeapPair heaps = make_pair(0, 0);
  const auto report = probe::measure_gpu(target_of(heaps, 0, 0));
  ASSERT_TRUE(report.ok()) << report.status().to_string();
  int device = -1;
  ASSERT_CUDA(cudaGetDevice(&device));
  EXPECT_EQ(device, 0);
  EXPECT_CUDA(cudaGetLastError());
  expect_zero(heaps);
}

TEST(ProbeGpu, TwoGpusAreLeftAsTheyWere) {
  ASSERT_CUDA(cudaSetDevice(1));
  const cli::HeapPair heaps = make_pair(0, 1);
  const auto report = probe::measure_gpu(target_of(heaps, 0, 1));
  ASSERT_TRUE(report.ok()) << report.status().to_string();
  int device = -1;
  ASSERT_CUDA(cudaGetDevice(&device));
  EXPECT_EQ(device, 1);
  expect_zero(heaps);
}

TEST(ProbeGpu, AnEndThatIsNeverHeardIsATimeoutThatNamesIt) {
  // Two ends that store into different heaps.
  const cli::HeapPair heaps = make_pair(0, 0), others = make_pair(0, 0);
  probe::GpuProbeTarget target = target_of(heaps, 0, 0);
  target.ends[1] = target_of(others, 0, 0).ends[1];
  target.wait_limit = std::chrono::milliseconds(50);
  const Status status = probe::measure_gpu(target).status();
  EXPECT_EQ(status.code(), Code::timeout) << status.to_string();
  EXPECT_THAT(status.text(), HasSubstr("GPU 0 SM"));
  EXPECT_THAT(status.text(), HasSubstr("within 50 ms"));
  // And the GPU is still usable.
  EXPECT_TRUE(probe::measure_gpu(target_of(heaps, 0, 0)).ok());
}

TEST(ProbeGpu, NamesABadArgument) {
  const cli::HeapPair heaps = make_pair(0, 0);
  const auto text_of = [](const probe::GpuProbeTarget& target) {
    const Status status = probe::measure_gpu(target).status();
    EXPECT_EQ(status.code(), Code::invalid_argument) << status.to_string();
    return status.text();
  };
  probe::GpuProbeTarget target = target_of(heaps, 0, 0);
  target.lines = 0;
  EXPECT_THAT(text_of(target), HasSubstr("lines"));
  target = target_of(heaps, 0, 0);
  target.offset = 4;
  EXPECT_THAT(text_of(target), HasSubstr("offset"));
  target = target_of(heaps, 0, 0);
  target.bytes = 1024;
  EXPECT_THAT(text_of(target), HasSubstr("bytes"));
  target = target_of(heaps, 0, 0);
  target.offset = target.ends[0].stride;
  EXPECT_THAT(text_of(target), HasSubstr("part"));
  target = target_of(heaps, 0, 0);
  target.ends[1].base = nullptr;
  EXPECT_THAT(text_of(target), HasSubstr("base"));
  target = target_of(heaps, 0, 0);
  target.ends[1].rank = 0;
  EXPECT_THAT(text_of(target), HasSubstr("both are rank 0"));
}

TEST(ProbeGpu, ItsFloorsMakeAResultFileWithoutAFault) {
  const auto report = cli::measure_sol_on_gpus(0, 0);
  ASSERT_TRUE(report.ok()) << report.status().to_string();
  cli::ResultFile file;
  file.date = cli::now_utc();
  file.commit = "unknown";
  file.command = "test";
  file.machine = {"some GPU", 1, "none", "1", "13.0", "none", "some processor"};
  file.floors = cli::floors_of(*report);
  EXPECT_THAT(cli::find_faults(file), testing::IsEmpty());
}

}  // namespace
}  // namespace nearlight::test
