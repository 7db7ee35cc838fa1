// GPU ranks in processes of their own: programs that this one starts, which meet, share memory by descriptors
// and reduce. This process itself must not touch CUDA for them: each rank has a context of its own anyway.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nearlight/nearlight.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bootstrap/job.hpp"
#include "bootstrap/process_group.hpp"
#include "memory/cuda_vmm_heap.hpp"
#include "runtime/create.hpp"
#include "tests/gpu/heap_checks.hpp"
#include "tests/gpu/kills_gpu.hpp"
#include "tests/gpu/ranks.hpp"
#include "tests/support/ranks.hpp"
#include "tests/support/spawned.hpp"

namespace nearlight::test {
namespace {

using std::chrono::seconds;
using testing::HasSubstr;
using testing::Not;

constexpr std::size_t kHeapBytes = (std::size_t{5} << 20) + 12;  // no multiple of anything
constexpr std::size_t kBufferBytes = std::size_t{1} << 20;

Deadline patience() { return Deadline::after(test::patient(seconds(60))); }

// ---- a rank: PROGRAM --rank MODE DEVICE
// ---------------------------------------------------------------------

struct Self {
  std::string mode;
  int device = 0;
  bootstrap::Job job;
  std::unique_ptr<Exchange> exchange;  // the test's own; communicators and heaps get others

  void meet() const { EXPECT_OK(exchange->barrier(patience())); }
  // Another meeting of the same ranks.
  std::unique_ptr<Exchange> another_exchange() const {
    auto joined = bootstrap::join_process_group({job.rank, job.nranks, job.key}, patience());
    EXPECT_OK(joined.status());
    return joined.ok() ? std::move(*joined) : nullptr;
  }
};

int open_descriptors() {
  int count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) ++count;
  return count;
}

// The same descriptors and the same free GPU memory after `cycle` as before, over and over; all ranks
// together.
void expect_no_growth(const Self& self, const std::function<void()>& cycle) {
  const auto free_bytes = [&] {
    self.meet();
    std::size_t free = 0, total = 0;
    EXPECT_CUDA(cudaDeviceSynchronize());
    EXPECT_CUDA(cudaMemGetInfo(&free, &total));
    self.meet();
    return free;
  };
  for (int i = 0; i < 3; ++i) cycle();
  const std::size_t before = free_bytes();
  const int descriptors = open_descriptors();
  for (int i = 0; i < scaled(20, 3); ++i) cycle();
  EXPECT_EQ(free_bytes(), before);
  EXPECT_EQ(open_descriptors(), descriptors);
}

void play_heap(const Self& self) {
  auto heap = memory::create_cuda_vmm_heap(*self.exchange, self.device, kHeapBytes, patience());
  ASSERT_OK(heap.status());
  expect_working(**heap, "cuda_vmm", self.job.rank, self.job.nranks, kHeapBytes, [&] { self.meet(); });
  // Rank 0 lets go first: what the others still store into its part goes somewhere.
  if (self.job.rank == 0) heap->reset();
  self.meet();
  if (self.job.rank != 0) {
    const CopyStream stream;
    char* const part = (*heap)->view().part(0);
    stream.fill(part + static_cast<std::size_t>(self.job.rank) * 4096, self.job.rank, 4096);
    const auto seen = stream.read(part + static_cast<std::size_t>(self.job.rank) * 4096, 4096);
    EXPECT_TRUE(all_are(seen, static_cast<char>(self.job.rank)));
  }
  self.meet();
}

void play_cycles(const Self& self) {
  expect_no_growth(self, [&] {
    const auto heap = memory::create_cuda_vmm_heap(*self.exchange, self.device, kHeapBytes, patience());
    EXPECT_OK(heap.status());
    self.meet();
  });
  runtime::Options options = test_options();
  expect_no_growth(self, [&] {
    const auto comm = runtime::create_cuda_processes(self.another_exchange(), self.device, options);
    EXPECT_OK(comm.status());
    self.meet();
  });
}

// One rank is the cause, all fail, nothing stays, and the exchange can still be used.
void play_failures(const Self& self) {
  const bool last = self.job.rank == self.job.nranks - 1;
  const auto expect_fails = [&](int device, std::size_t bytes, Code code, const char* word) {
    const auto heap = memory::create_cuda_vmm_heap(*self.exchange, device, bytes, patience());
    EXPECT_EQ(heap.status().code(), code) << heap.status().to_string();
    EXPECT_THAT(heap.status().text(), HasSubstr(word));
  };
  expect_no_growth(self, [&] {
    expect_fails(self.device, last ? kHeapBytes : 2 * kHeapBytes, Code::invalid_argument, "bytes");
    expect_fails(last ? 99 : self.device, kHeapBytes, Code::invalid_argument, "device: 99");
    expect_fails(self.device, std::size_t{1} << 44, Code::cuda_error, "out of memory");
    EXPECT_CUDA(cudaGetLastError());
  });
  const auto heap = memory::create_cuda_vmm_heap(*self.exchange, self.device, kHeapBytes, patience());
  EXPECT_OK(heap.status());
  self.meet();
}

// Ranks that share a GPU are short of memory only together: what the first took must go again.
void play_too_much(const Self& self) {
  expect_no_growth(self, [&] {
    std::size_t free = 0, total = 0;
    EXPECT_CUDA(cudaMemGetInfo(&free, &total));
    const auto all = gather_values(*self.exchange, total / 2 + (std::size_t{1} << 30), patience());
    ASSERT_OK(all.status());
    const auto heap = memory::create_cuda_vmm_heap(*self.exchange, self.device, (*all)[0], patience());
    EXPECT_EQ(heap.status().code(), Code::cuda_error) << heap.status().to_string();
    EXPECT_THAT(heap.status().text(), HasSubstr("cuMemCreate"));
    self.meet();
  });
}

// A stream, buffers and a communicator.
class Player {
 public:
  explicit Player(const Self& self) {
    rank_.rank = self.job.rank;
    rank_.nranks = self.job.nranks;
    rank_.device = self.device;
    EXPECT_CUDA(cudaStreamCreateWithFlags(&rank_.stream, cudaStreamNonBlocking));
    EXPECT_CUDA(preload_device_work());
    EXPECT_CUDA(cudaMalloc(reinterpret_cast<void**>(&rank_.send), kBufferBytes));
    EXPECT_CUDA(cudaMalloc(reinterpret_cast<void**>(&rank_.recv), kBufferBytes));
    EXPECT_CUDA(cudaMalloc(reinterpret_cast<void**>(&rank_.report), sizeof(Report)));
    EXPECT_CUDA(cudaMalloc(reinterpret_cast<void**>(&rank_.counter), sizeof(std::uint64_t)));
    EXPECT_CUDA(cudaMemset(rank_.report, 0, sizeof(Report)));
    EXPECT_CUDA(cudaMemset(rank_.counter, 0, sizeof(std::uint64_t)));
    EXPECT_CUDA(cudaDeviceSynchronize());
    auto created = runtime::create_cuda_processes(self.another_exchange(), self.device, test_options());
    EXPECT_OK(created.status());
    if (!created.ok()) return;
    rank_.comm = std::move(*created);
    EXPECT_STREQ(rank_.comm->backend(), "cuda");
    EXPECT_STREQ(rank_.comm->memory(), "cuda_vmm");
    EXPECT_EQ(rank_.comm->rank(), self.job.rank);
    EXPECT_EQ(rank_.comm->nranks(), self.job.nranks);
  }
  Player(const Player&) = delete;
  ~Player() {
    EXPECT_CUDA(cudaStreamSynchronize(rank_.stream));
    rank_.comm.reset();
    EXPECT_CUDA(cudaFree(rank_.send));
    EXPECT_CUDA(cudaFree(rank_.recv));
    EXPECT_CUDA(cudaFree(rank_.report));
    EXPECT_CUDA(cudaFree(rank_.counter));
    EXPECT_CUDA(cudaStreamDestroy(rank_.stream));
  }
  bool ok() const { return rank_.comm != nullptr; }
  Rank& rank() { return rank_; }
  void expect_clean(std::uint64_t checks) const {
    const Report report = rank_.wait_and_read();
    EXPECT_EQ(report.wrong, 0u) << "case " << report.case_id << ": what " << report.what << " at "
                                << report.index << ", expected " << report.expected << ", got " << report.got;
    EXPECT_EQ(report.checks, checks);
    EXPECT_OK(rank_.comm->status());
  }

 private:
  Rank rank_;
};

void play_reduce(const Self& self) {
  Player player(self);
  ASSERT_TRUE(player.ok());
  Rank& rank = player.rank();
  std::uint32_t case_id = 0;
  for (const DataType type : kDataTypes) {
    for (const ReduceOp op : kReduceOps) {
      for (const route::Protocol protocol : {route::Protocol::ll, route::Protocol::simple}) {
        for (const std::uint64_t count : {1u, 31u, 4099u, 100'003u}) {
          runtime::CallOptions how;
          how.protocol = protocol;
          const Work work =
              rank.work({type, op, Values::general, case_id}, count, case_id % 2 == 0, 0, 0, case_id);
          ASSERT_OK(rank.prepare_reduce_check(work, how));
          ++case_id;
        }
      }
    }
  }
  player.expect_clean(case_id);
  self.meet();
  // A graph, replayed: new data each time.
  Work work = rank.work({DataType::bf16, ReduceOp::sum, Values::general, 77}, 4099, false);
  work.counter = rank.counter;
  Graph graph(rank, [&]() -> Status {
    NL_TRY(rank.prepare_reduce_check(work));
    return ok_or("advance", advance(rank.counter, rank.stream));
  });
  ASSERT_TRUE(graph.ok());
  self.meet();
  const int replays = scaled(50, 5);
  for (int i = 0; i < replays; ++i) ASSERT_CUDA(graph.launch());
  player.expect_clean(static_cast<std::uint64_t>(replays));
  graph.destroy();
  self.meet();
}

// Through the C API: by the job's environment, and by rank, size and key.
void play_c_api(const Self& self) {
  constexpr std::size_t kCount = 5000;
  nearlightConfig_t config = NEARLIGHT_CONFIG_INITIALIZER;
  config.timeout_ms = test::patient(seconds(60)).count();
  config.create_timeout_ms = config.timeout_ms;
  cudaStream_t stream = nullptr;
  float* data = nullptr;
  ASSERT_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  ASSERT_CUDA(cudaMalloc(reinterpret_cast<void**>(&data), kCount * sizeof(float)));
  const int nranks = self.job.nranks;
  for (const bool by_job : {true, false}) {
    nearlightComm_t comm = nullptr;
    ASSERT_EQ(by_job ? nearlightCommCreateCuda(&comm, self.device, -1, -1, nullptr, &config)
                     : nearlightCommCreateCuda(&comm, self.device, self.job.rank, nranks,
                                               self.job.key.c_str(), &config),
              nearlightSuccess)
        << nearlightGetLastError();
    nearlightCommInfo_t info = NEARLIGHT_COMM_INFO_INITIALIZER;
    ASSERT_EQ(nearlightCommGetInfo(comm, &info), nearlightSuccess);
    EXPECT_EQ(info.rank, self.job.rank);
    EXPECT_EQ(info.nranks, nranks);
    EXPECT_STREQ(info.backend, "cuda");
    EXPECT_STREQ(info.memory, "cuda_vmm");
    // Each rank multiplies by a factor of its own: 1 * 10 + 2 * 20 + ...
    const float factor = static_cast<float>(10 * (self.job.rank + 1));
    nearlightRedOp_t scaled = nearlightSum;
    ASSERT_EQ(
        nearlightRedOpCreatePreMulSum(&scaled, &factor, nearlightFloat32, nearlightScalarHostImmediate, comm),
        nearlightSuccess)
        << nearlightGetLastError();
    for (const nearlightRedOp_t op : {nearlightSum, scaled}) {
      std::vector<float> values(kCount, static_cast<float>(self.job.rank + 1));
      ASSERT_CUDA(
          cudaMemcpyAsync(data, values.data(), kCount * sizeof(float), cudaMemcpyHostToDevice, stream));
      ASSERT_EQ(nearlightAllReduce(data, data, kCount, nearlightFloat32, op, comm, stream), nearlightSuccess)
          << nearlightGetLastError();
      ASSERT_CUDA(cudaStreamSynchronize(stream));
      ASSERT_CUDA(cudaMemcpy(values.data(), data, kCount * sizeof(float), cudaMemcpyDeviceToHost));
      float expected = 0;
      for (int i = 1; i <= nranks; ++i) expected += static_cast<float>(op == scaled ? 10 * i * i : i);
      for (const float value : values) ASSERT_EQ(value, expected);
    }
    self.meet();
    EXPECT_EQ(nearlightCommDestroy(comm), nearlightSuccess) << nearlightGetLastError();
    self.meet();
  }
  nearlightComm_t comm = nullptr;
  EXPECT_EQ(nearlightCommCreateCuda(&comm, 1000, -1, -1, nullptr, &config), nearlightInvalidArgument);
  EXPECT_THAT(nearlightGetLastError(), HasSubstr("device"));
  EXPECT_EQ(comm, nullptr);
  EXPECT_CUDA(cudaFree(data));
  EXPECT_CUDA(cudaStreamDestroy(stream));
  self.meet();
}

// Goes on until a peer is gone; then the process's CUDA is as good as before.
void play_endless(const Self& self) {
  Player player(self);
  ASSERT_TRUE(player.ok());
  Rank& rank = player.rank();
  const Work work = rank.work({DataType::f32, ReduceOp::sum, Values::general, 1}, 1000, false);
  Status status;
  for (std::uint64_t call = 0; status.ok(); ++call) {
    status = rank.all_reduce(work);
    EXPECT_CUDA(cudaStreamSynchronize(rank.stream));
    if (status.ok()) status = rank.comm->status();
    if (call == 20) std::printf("going\n");
  }
  std::printf("ended: %s\n", status.to_string().c_str());
  EXPECT_EQ(status.code(), Code::remote_error);
  EXPECT_FALSE(rank.all_reduce(work).ok());
  EXPECT_CUDA(cudaDeviceSynchronize());
  EXPECT_CUDA(cudaGetLastError());
  const auto fault = rank.comm->fault();
  ASSERT_TRUE(fault.has_value());
  std::printf("peer %d\n", fault->peer);
}

int rank_main(int argc, char** argv) {
  Self self;
  self.mode = argc > 2 ? argv[2] : "";
  self.device = argc > 3 ? std::atoi(argv[3]) : 0;
  setenv("CUDA_MODULE_LOADING", "EAGER", 0);
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  ::alarm(static_cast<unsigned>(std::chrono::duration_cast<seconds>(test::patient(seconds(100))).count()));
  testing::InitGoogleTest(&argc, argv);
  const auto play = [&] {
    auto job = bootstrap::find_job();
    ASSERT_OK(job.status());
    self.job = *job;
    self.exchange = self.another_exchange();
    ASSERT_NE(self.exchange, nullptr);
    ASSERT_CUDA(cudaSetDevice(self.device));
    const std::pair<const char*, void (*)(const Self&)> modes[] = {
        {"heap", play_heap},         {"cycles", play_cycles}, {"failures", play_failures},
        {"too_much", play_too_much}, {"reduce", play_reduce}, {"c_api", play_c_api},
        {"endless", play_endless}};
    for (const auto& [name, body] : modes) {
      if (self.mode == name) return body(self);
    }
    ADD_FAILURE() << "no mode " << self.mode;
  };
  play();
  // Outside of a test, GoogleTest keeps failures all the same.
  return testing::UnitTest::GetInstance()->Failed() ? 1 : 0;
}

// ---- the tests
// ----------------------------------------------------------------------------------------------

// One process a rank; devices[r] is rank r's.
std::vector<Spawned> start(const std::string& mode, const std::vector<int>& devices,
                           const std::vector<std::vector<std::string>>& environments = {}) {
  const std::string key = fresh_key();
  std::vector<Spawned> ranks;
  for (std::size_t rank = 0; rank < devices.size(); ++rank) {
    std::vector<std::string> environment = {"NEARLIGHT_RANK=" + std::to_string(rank),
                                            "NEARLIGHT_NRANKS=" + std::to_string(devices.size()),
                                            "NEARLIGHT_KEY=" + key, "GTEST_FILTER"};
    if (!environments.empty())
      environment.insert(environment.end(), environments[rank].begin(), environments[rank].end());
    ranks.emplace_back(std::vector<std::string>{own_program(), "--rank", mode, std::to_string(devices[rank])},
                       environment);
  }
  return ranks;
}

void expect_well(std::vector<Spawned> ranks) {
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    EXPECT_EQ(ranks[rank].wait(test::patient(seconds(110))), 0) << "rank " << rank << ":\n"
                                                                << ranks[rank].output();
  }
}

// The GPU of that number as this process would count it, by whatever CUDA_VISIBLE_DEVICES calls it.
std::string name_of_gpu(int device) {
  const char* const visible = std::getenv("CUDA_VISIBLE_DEVICES");
  if (visible == nullptr || *visible == '\0') return std::to_string(device);
  std::string rest = visible;
  for (int i = 0; i < device; ++i) rest = rest.substr(std::min(rest.size(), rest.find(',') + 1));
  return rest.substr(0, rest.find(','));
}
// Each process sees its own GPU only, as number 0.
std::vector<std::vector<std::string>> one_gpu_each(int ranks) {
  std::vector<std::vector<std::string>> all;
  for (int rank = 0; rank < ranks; ++rank) all.push_back({"CUDA_VISIBLE_DEVICES=" + name_of_gpu(rank)});
  return all;
}

// Ranks on one GPU take turns.
TEST(ProcessesGpu, HeapOfOneRank) { expect_well(start("heap", {0})); }
TEST(ProcessesGpu, HeapOfThreeRanks) { expect_well(start("heap", {0, 0, 0})); }
TEST(ProcessesGpu, CyclesLeaveNothing) { expect_well(start("cycles", {0, 0})); }
TEST(ProcessesGpu, FailuresReachAllRanksAndLeaveNothing) { expect_well(start("failures", {0, 0})); }
TEST(ProcessesGpu, WhatDoesNotFitForAllIsGivenBack) { expect_well(start("too_much", {0, 0})); }
TEST(ProcessesGpu, OneRankReduces) { expect_well(start("reduce", {0})); }
TEST(ProcessesGpu, TwoRanksReduce) { expect_well(start("reduce", {0, 0})); }
TEST(ProcessesGpu, ThroughTheCApi) {
  expect_well(start("c_api", {0}));
  expect_well(start("c_api", {0, 0}));
}
TEST(ProcessesGpu, ThreeRanksReduce) { expect_well(start("reduce", {0, 0, 0})); }

TEST(ProcessesTwoGpus, Heap) { expect_well(start("heap", {0, 1})); }
TEST(ProcessesTwoGpus, HeapTheOtherWayRound) { expect_well(start("heap", {1, 0})); }
TEST(ProcessesTwoGpus, CyclesLeaveNothing) { expect_well(start("cycles", {0, 1})); }
TEST(ProcessesTwoGpus, FailuresReachAllRanksAndLeaveNothing) { expect_well(start("failures", {0, 1})); }
TEST(ProcessesTwoGpus, TwoRanksReduce) { expect_well(start("reduce", {0, 1})); }
TEST(ProcessesTwoGpus, ThroughTheCApi) { expect_well(start("c_api", {0, 1})); }
TEST(ProcessesTwoGpus, FourRanksReduce) { expect_well(start("reduce", {0, 1, 1, 0})); }
TEST(ProcessesTwoGpus, HeapWhereEachSeesItsOwnOnly) { expect_well(start("heap", {0, 0}, one_gpu_each(2))); }
TEST(ProcessesTwoGpus, ReduceWhereEachSeesItsOwnOnly) {
  expect_well(start("reduce", {0, 0}, one_gpu_each(2)));
}

void expect_death_is_noticed(const std::vector<int>& devices) {
  for (std::size_t victim = 0; victim < devices.size(); ++victim) {
    auto ranks = start("endless", devices);
    for (const Spawned& rank : ranks) ASSERT_TRUE(rank.wait_for_output("going")) << rank.output();
    const auto begin = std::chrono::steady_clock::now();
    ranks[victim].kill(SIGKILL);
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
      if (rank == victim) continue;
      EXPECT_EQ(ranks[rank].wait(test::patient(seconds(60))), 0) << ranks[rank].output();
      EXPECT_THAT(ranks[rank].output(), HasSubstr("rank " + std::to_string(victim) + ": its process " +
                                                  std::to_string(ranks[victim].pid()) + " has ended"));
      EXPECT_THAT(ranks[rank].output(), HasSubstr("peer " + std::to_string(victim)));
    }
    // Sooner than the time limit of a wait.
    EXPECT_LT(std::chrono::steady_clock::now() - begin, *test_options().timeout);
    EXPECT_EQ(ranks[victim].wait(), -SIGKILL);
  }
}
TEST(ProcessesGpu, ADeadRankIsNoticed) { expect_death_is_noticed({0, 0}); }
TEST(ProcessesTwoGpus, ADeadRankIsNoticed) { expect_death_is_noticed({0, 1}); }

}  // namespace
}  // namespace nearlight::test

int main(int argc, char** argv) {
  if (argc > 2 && std::string(argv[1]) == "--trial") return nearlight::test::trial_main(argc, argv);
  if (argc > 1 && std::string(argv[1]) == "--rank") return nearlight::test::rank_main(argc, argv);
  return nearlight::test::gpu_test_main(argc, argv, std::chrono::seconds(118));  // many trials a test
}
