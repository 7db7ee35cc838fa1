// The symmetric heaps on GPUs, and the exchange through an NCCL communicator.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <barrier>
#include <cstring>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "bootstrap/in_process.hpp"
#include "memory/cuda_driver.hpp"
#include "memory/cuda_vmm_heap.hpp"
#include "tests/gpu/heap_checks.hpp"
#include "tests/support/gpu_support.hpp"
#if NEARLIGHT_HAS_NCCL_HEADERS
#include "memory/nccl_api.hpp"
#include "memory/nccl_exchange.hpp"
#include "memory/nccl_window_heap.hpp"
#endif

namespace nearlight::test {
namespace {

using memory::Heap;
using memory::HeapView;
using HeapResult = Result<std::unique_ptr<Heap>>;

constexpr std::size_t kBytes = (std::size_t{5} << 20) + 12;  // no multiple of anything

Deadline patience() { return Deadline::after(patient(std::chrono::seconds(30))); }

// Runs body(rank) in a thread for each rank.
void in_threads(int nranks, const std::function<void(int)>& body) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < nranks; ++rank) threads.emplace_back(body, rank);
  for (std::thread& thread : threads) thread.join();
}

std::vector<std::size_t> free_bytes(int gpus) {
  std::vector<std::size_t> all;
  for (int device = 0; device < gpus; ++device) {
    std::size_t free = 0, total = 0;
    EXPECT_CUDA(cudaSetDevice(device));
    EXPECT_CUDA(cudaDeviceSynchronize());
    EXPECT_CUDA(cudaMemGetInfo(&free, &total));
    all.push_back(free);
  }
  return all;
}

// The first cycles fill caches of the driver and of NCCL.
void expect_no_growth(int gpus, const std::function<void()>& cycle) {
  for (int i = 0; i < 3; ++i) cycle();
  const auto before = free_bytes(gpus);
  const int cycles = scaled(20, 3);
  for (int i = 0; i < cycles; ++i) cycle();
  EXPECT_EQ(free_bytes(gpus), before) << "free bytes of each GPU after " << cycles << " cycles, and before";
}

bool contains(const Status& status, const std::string& word) {
  return status.text().find(word) != std::string::npos;
}

// ---- cuda_vmm -----------------------------------------------------------------------------------------

// Creates a heap on every rank; [rank] is the result.
std::vector<HeapResult> create_vmm(const std::vector<int>& devices, const std::vector<std::size_t>& bytes) {
  std::vector<HeapResult> all;
  for (std::size_t rank = 0; rank < devices.size(); ++rank)
    all.emplace_back(failure(Code::internal_error, "none"));
  auto group = bootstrap::make_in_process_group(static_cast<int>(devices.size()));
  in_threads(static_cast<int>(devices.size()), [&](int rank) {
    const auto at = static_cast<std::size_t>(rank);
    all[at] = memory::create_cuda_vmm_heap(*group[at], devices[at], bytes[at], patience());
  });
  return all;
}

void expect_vmm_works(const std::vector<int>& devices, std::size_t bytes) {
  const int nranks = static_cast<int>(devices.size());
  auto heaps = create_vmm(devices, std::vector<std::size_t>(devices.size(), bytes));
  for (const HeapResult& heap : heaps) ASSERT_OK(heap.status());
  std::barrier meeting(nranks);
  in_threads(nranks, [&](int rank) {
    const auto at = static_cast<std::size_t>(rank);
    EXPECT_CUDA(cudaSetDevice(devices[at]));
    expect_working(*heaps[at].value(), "cuda_vmm", rank, nranks, bytes, [&] { meeting.arrive_and_wait(); });
  });
}

TEST(CudaVmmGpu, OneRank) { expect_vmm_works({0}, kBytes); }
TEST(CudaVmmGpu, ThreeRanksOnOneGpu) { expect_vmm_works({0, 0, 0}, kBytes); }
TEST(CudaVmmGpu, EightRanksOnOneGpu) { expect_vmm_works(std::vector<int>(8, 0), 1000); }
TEST(CudaVmmGpu, TwoGpus) { expect_vmm_works({0, 1}, kBytes); }
TEST(CudaVmmGpu, TwoGpusTheOtherWayRound) { expect_vmm_works({1, 0}, kBytes); }
TEST(CudaVmmGpu, FiveRanksOnTwoGpus) { expect_vmm_works({0, 1, 0, 1, 1}, kBytes); }

void vmm_cycle(const std::vector<int>& devices) {
  for (const HeapResult& heap : create_vmm(devices, std::vector<std::size_t>(devices.size(), kBytes))) {
    EXPECT_OK(heap.status());
  }
}
TEST(CudaVmmGpu, CyclesLeaveNothing) {
  expect_no_growth(1, [] { vmm_cycle({0, 0, 0}); });
}
TEST(CudaVmmGpu, CyclesOnTwoGpusLeaveNothing) {
  expect_no_growth(2, [] { vmm_cycle({0, 1, 0}); });
}

void expect_vmm_fails(const std::vector<int>& devices, const std::vector<std::size_t>& bytes, Code code,
                      const std::string& word) {
  for (const HeapResult& heap : create_vmm(devices, bytes)) {
    EXPECT_EQ(heap.status().code(), code) << heap.status().to_string();
    EXPECT_TRUE(contains(heap.status(), word)) << heap.status().to_string();
  }
  EXPECT_CUDA(cudaGetLastError());
}

TEST(CudaVmmGpu, FailuresReachAllRanksAndLeaveNothing) {
  expect_no_growth(1, [] {
    expect_vmm_fails({0, 0, 0}, {kBytes, kBytes, 2 * kBytes}, Code::invalid_argument, "bytes");
    expect_vmm_fails({0, 0}, {0, 0}, Code::invalid_argument, "bytes");
    expect_vmm_fails({0, 99, 0}, {kBytes, kBytes, kBytes}, Code::invalid_argument, "device: 99");
    expect_vmm_fails({0, -1}, {kBytes, kBytes}, Code::invalid_argument, "device: -1");
    expect_vmm_fails({0, 0}, {std::size_t{1} << 44, std::size_t{1} << 44}, Code::cuda_error, "out of memory");
    expect_vmm_fails({0, 0}, {~std::size_t{0}, ~std::size_t{0}}, Code::invalid_argument, "bytes");
    // Only the second rank's memory is too much: what the first one mapped must go again.
    std::size_t free = 0, total = 0;
    EXPECT_CUDA(cudaMemGetInfo(&free, &total));
    const std::size_t half = total / 2 + (std::size_t{1} << 30);
    expect_vmm_fails({0, 0}, {half, half}, Code::cuda_error, "cuMemCreate");
  });
  expect_vmm_works({0, 0}, kBytes);
}

TEST(CudaVmmGpu, MissingRankEndsInTime) {
  auto group = bootstrap::make_in_process_group(2);
  const auto heap = memory::create_cuda_vmm_heap(*group[0], 0, kBytes, Deadline::after_ms(200));
  EXPECT_EQ(heap.status().code(), Code::timeout) << heap.status().to_string();
  EXPECT_TRUE(contains(heap.status(), "1")) << heap.status().to_string();
}

TEST(CudaVmmGpu, MemoryStaysUntilTheLastRankLetsGo) {
  auto heaps = create_vmm({0, 0}, {kBytes, kBytes});
  for (const HeapResult& heap : heaps) ASSERT_OK(heap.status());
  heaps[0].value().reset();
  EXPECT_CUDA(cudaSetDevice(0));
  const CopyStream stream;
  const HeapView& view = heaps[1].value()->view();
  stream.fill(view.part(0), 7, kBytes);
  EXPECT_TRUE(all_are(stream.read(view.part(0), kBytes), 7));
}

TEST(CudaVmmGpu, CurrentDeviceStaysOnTwoGpus) {
  auto group = bootstrap::make_in_process_group(1);
  std::thread([&] {
    EXPECT_CUDA(cudaSetDevice(0));
    const auto heap = memory::create_cuda_vmm_heap(*group[0], 1, kBytes, patience());
    ASSERT_OK(heap.status());
    int device = -1;
    EXPECT_CUDA(cudaGetDevice(&device));
    EXPECT_EQ(device, 0);
    // And it is usable: this allocates on device 0.
    void* memory = nullptr;
    EXPECT_CUDA(cudaMalloc(&memory, 1000));
    cudaPointerAttributes attributes{};
    EXPECT_CUDA(cudaPointerGetAttributes(&attributes, memory));
    EXPECT_EQ(attributes.device, 0);
    EXPECT_CUDA(cudaFree(memory));
  }).join();
}

// ---- NCCL ---------------------------------------------------------------------------------------------

#if NEARLIGHT_HAS_NCCL_HEADERS

// Communicators of the first `nranks` GPUs, one a rank.
class Comms {
 public:
  explicit Comms(int nranks) {
    const auto found = memory::Nccl::find();
    EXPECT_OK(found.status());
    if (!found.ok()) return;
    nccl_ = found.value();
    std::vector<int> devices(static_cast<std::size_t>(nranks));
    std::iota(devices.begin(), devices.end(), 0);
    auto made = nccl_->comm_init_all(devices);
    EXPECT_OK(made.status());
    if (made.ok()) comms_ = std::move(made).value();
  }
  Comms(const Comms&) = delete;
  ~Comms() {
    if (comms_.empty()) return;
    in_threads(size(), [&](int rank) {
      EXPECT_CUDA(cudaSetDevice(rank));
      EXPECT_OK(aborted_ ? nccl_->comm_abort((*this)[rank]) : nccl_->comm_destroy((*this)[rank]));
    });
  }
  bool ok() const { return !comms_.empty(); }
  int size() const { return static_cast<int>(comms_.size()); }
  ncclComm* operator[](int rank) const { return comms_[static_cast<std::size_t>(rank)]; }
  const memory::Nccl& nccl() const { return *nccl_; }
  // They are beyond use: abort them instead of destroying them.
  void abort() { aborted_ = true; }

 private:
  const memory::Nccl* nccl_ = nullptr;
  std::vector<ncclComm*> comms_;
  bool aborted_ = false;
};

std::vector<HeapResult> create_windows(const Comms& comms, const std::vector<std::size_t>& bytes) {
  std::vector<HeapResult> all;
  for (int rank = 0; rank < comms.size(); ++rank) all.emplace_back(failure(Code::internal_error, "none"));
  in_threads(comms.size(), [&](int rank) {
    const auto at = static_cast<std::size_t>(rank);
    all[at] = memory::create_nccl_window_heap(comms[rank], bytes[at], patience());
  });
  return all;
}

// Destroys them at the same time, each in a thread of its own.
void destroy(std::vector<HeapResult>& heaps) {
  in_threads(static_cast<int>(heaps.size()), [&](int rank) {
    auto& heap = heaps[static_cast<std::size_t>(rank)];
    if (heap.ok()) heap.value().reset();
  });
}

TEST(NcclWindowGpu, WorksOnTwoGpus) {
  const Comms comms(2);
  ASSERT_TRUE(comms.ok());
  for (const std::size_t bytes : {std::size_t{1}, std::size_t{4096}, kBytes}) {
    auto heaps = create_windows(comms, {bytes, bytes});
    for (const HeapResult& heap : heaps) ASSERT_OK(heap.status());
    std::barrier meeting(2);
    in_threads(2, [&](int rank) {
      EXPECT_CUDA(cudaSetDevice(rank));
      expect_working(*heaps[static_cast<std::size_t>(rank)].value(), "nccl_window", rank, 2, bytes,
                     [&] { meeting.arrive_and_wait(); });
    });
    destroy(heaps);
  }
}

TEST(NcclWindowGpu, SeveralHeapsOnTwoGpusKeepApart) {
  const Comms comms(2);
  ASSERT_TRUE(comms.ok());
  auto first = create_windows(comms, {kBytes, kBytes});
  auto second = create_windows(comms, {kBytes, kBytes});
  for (int rank = 0; rank < 2; ++rank) {
    ASSERT_OK(first[static_cast<std::size_t>(rank)].status());
    ASSERT_OK(second[static_cast<std::size_t>(rank)].status());
  }
  EXPECT_CUDA(cudaSetDevice(0));
  const CopyStream stream;
  stream.fill(first[0].value()->view().part(1), 3, kBytes);
  EXPECT_TRUE(all_are(stream.read(second[0].value()->view().part(1), kBytes), 0));
  destroy(first);
  EXPECT_TRUE(all_are(stream.read(second[0].value()->view().part(1), kBytes), 0));
  destroy(second);
}

TEST(NcclWindowGpu, CyclesOnTwoGpusLeaveNothing) {
  const Comms comms(2);
  ASSERT_TRUE(comms.ok());
  expect_no_growth(2, [&] {
    auto heaps = create_windows(comms, {kBytes, kBytes});
    for (const HeapResult& heap : heaps) EXPECT_OK(heap.status());
    destroy(heaps);
  });
}

TEST(NcclWindowGpu, FailuresOnTwoGpusReachAllRanksAndLeaveNothing) {
  const Comms comms(2);
  ASSERT_TRUE(comms.ok());
  const auto expect_fails = [&](const std::vector<std::size_t>& bytes, Code code, const std::string& word) {
    for (const HeapResult& heap : create_windows(comms, bytes)) {
      EXPECT_EQ(heap.status().code(), code) << heap.status().to_string();
      EXPECT_TRUE(contains(heap.status(), word)) << heap.status().to_string();
    }
  };
  expect_no_growth(2, [&] {
    expect_fails({kBytes, 2 * kBytes}, Code::invalid_argument, "bytes");
    expect_fails({0, 0}, Code::invalid_argument, "bytes");
    expect_fails({~std::size_t{0}, ~std::size_t{0}}, Code::invalid_argument, "bytes");
    expect_fails({std::size_t{1} << 44, std::size_t{1} << 44}, Code::cuda_error, "ncclMemAlloc");
  });
  // And the communicator has not suffered.
  auto heaps = create_windows(comms, {kBytes, kBytes});
  for (const HeapResult& heap : heaps) EXPECT_OK(heap.status());
  destroy(heaps);
}

TEST(NcclWindowGpu, CurrentDeviceStaysOnTwoGpus) {
  const Comms comms(2);
  ASSERT_TRUE(comms.ok());
  in_threads(2, [&](int rank) {
    EXPECT_CUDA(cudaSetDevice(1 - rank));
    const auto heap = memory::create_nccl_window_heap(comms[rank], kBytes, patience());
    EXPECT_OK(heap.status());
    int device = -1;
    EXPECT_CUDA(cudaGetDevice(&device));
    EXPECT_EQ(device, 1 - rank);
  });
}

TEST(NcclWindowGpu, MissingRankOnTwoGpusEndsInTime) {
  Comms comms(2);
  ASSERT_TRUE(comms.ok());
  const auto start = std::chrono::steady_clock::now();
  const auto heap = memory::create_nccl_window_heap(comms[0], kBytes, Deadline::after_ms(1500));
  EXPECT_LT(std::chrono::steady_clock::now() - start, patient(std::chrono::seconds(15)));
  EXPECT_EQ(heap.status().code(), Code::timeout) << heap.status().to_string();
  comms.abort();
}

TEST(NcclExchangeGpu, TwoGpusExchange) {
  const Comms comms(2);
  ASSERT_TRUE(comms.ok());
  in_threads(2, [&](int rank) {
    auto made = memory::create_nccl_exchange(comms[rank], patience());
    ASSERT_OK(made.status());
    Exchange& exchange = **made;
    EXPECT_EQ(exchange.rank(), rank);
    EXPECT_EQ(exchange.nranks(), 2);
    EXPECT_FALSE(exchange.same_process());
    EXPECT_EQ(exchange.processes(), std::vector<pid_t>(2, ::getpid()));
    for (const std::size_t bytes : {0u, 1u, 4079u, 4080u, 4081u, 50000u}) {
      std::vector<std::byte> mine(bytes), all(2 * bytes);
      for (std::size_t i = 0; i < bytes; ++i)
        mine[i] = static_cast<std::byte>((i * 7 + static_cast<std::size_t>(rank)) & 255);
      EXPECT_OK(exchange.all_gather(mine, all, patience()));
      bool fine = true;
      for (std::size_t i = 0; i < 2 * bytes; ++i) {
        fine = fine && all[i] == static_cast<std::byte>(bytes == 0 ? 0 : (i % bytes * 7 + i / bytes) & 255);
      }
      EXPECT_TRUE(fine) << bytes << " bytes";
    }
    EXPECT_OK(exchange.barrier(patience()));
    EXPECT_EQ(exchange.share_fd(0, 0, patience()).status().code(), Code::unsupported);
    const Status all =
        agree(exchange, rank == 1 ? failure(Code::unsupported, "why not") : Status(), patience());
    EXPECT_EQ(all.code(), Code::unsupported);
    EXPECT_TRUE(contains(all, "why not")) << all.to_string();
    // Different sizes, last: the exchange is unusable after it.
    std::vector<std::byte> mine(rank == 0 ? 8 : 9000), all_bytes(2 * mine.size());
    const Status status = exchange.all_gather(mine, all_bytes, patience());
    EXPECT_EQ(status.code(), Code::invalid_usage) << status.to_string();
    EXPECT_TRUE(contains(status, "9000")) << status.to_string();
    EXPECT_FALSE(exchange.barrier(patience()).ok());
  });
}

TEST(NcclExchangeGpu, OneGpu) {
  const Comms comms(1);
  ASSERT_TRUE(comms.ok());
  auto made = memory::create_nccl_exchange(comms[0], patience());
  ASSERT_OK(made.status());
  EXPECT_OK((*made)->barrier(patience()));
}

TEST(NcclExchangeGpu, RankThatDoesNotComeOnTwoGpus) {
  Comms comms(2);
  ASSERT_TRUE(comms.ok());
  std::barrier meeting(2);
  in_threads(2, [&](int rank) {
    auto made = memory::create_nccl_exchange(comms[rank], patience());
    EXPECT_OK(made.status());
    meeting.arrive_and_wait();
    if (rank == 0 && made.ok()) {
      const auto start = std::chrono::steady_clock::now();
      const Status status = (*made)->barrier(Deadline::after_ms(500));
      EXPECT_EQ(status.code(), Code::timeout) << status.to_string();
      EXPECT_LT(std::chrono::steady_clock::now() - start, patient(std::chrono::seconds(10)));
      EXPECT_FALSE((*made)->barrier(patience()).ok());
    }
    meeting.arrive_and_wait();
  });
  comms.abort();
}

#endif  // NEARLIGHT_HAS_NCCL_HEADERS

}  // namespace
}  // namespace nearlight::test
