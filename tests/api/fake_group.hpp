// Two GPU ranks, or one, on the stand-in for CUDA.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "base/fault_point.hpp"
#include "bootstrap/in_process.hpp"
#include "runtime/cuda_communicator.hpp"
#include "tests/api/fake_cuda.hpp"

namespace nearlight::test {

class FakeHeap final : public memory::Heap {
 public:
  FakeHeap(int rank, int nranks, std::size_t bytes) : memory_(static_cast<std::size_t>(nranks) * bytes) {
    view_ = {memory_.data(), bytes, bytes, rank, nranks};
  }
  const memory::HeapView& view() const override { return view_; }
  const char* kind() const override { return "fake"; }

 private:
  std::vector<char> memory_;
  memory::HeapView view_;
};

using Created = Result<std::unique_ptr<runtime::Communicator>>;

struct FakePair {
  runtime::Options options;
  std::array<int, 2> devices = {0, 1};
  int nranks = 2;  // 1: the first alone
  fault_points::Hook on_rank_1 = {};
  bool by_nvlink = false;  // of the plan for the heap
  // Of rank r; null: no rank has one.
  std::function<std::unique_ptr<runtime::Fallback>(int rank)> fallback = {};
};

inline std::vector<Created> create_pair(const FakePair& pair) {
  auto exchanges = bootstrap::make_in_process_group(pair.nranks);
  std::vector<Created> created;
  for (int rank = 0; rank < pair.nranks; ++rank)
    created.emplace_back(Status(Code::internal_error, "not run"));
  const auto make_heap = [](void*, Exchange& exchange, int, std::size_t bytes,
                            Deadline) -> Result<std::unique_ptr<memory::Heap>> {
    return std::unique_ptr<memory::Heap>(
        std::make_unique<FakeHeap>(exchange.rank(), exchange.nranks(), bytes));
  };
  std::vector<std::thread> threads;
  for (int rank = 0; rank < pair.nranks; ++rank) {
    threads.emplace_back([&, rank] {
      const auto i = static_cast<std::size_t>(rank);
      const fault_points::Planted planted(
          rank == 1 && pair.on_rank_1 ? pair.on_rank_1 : [](const fault_points::Point&) { return Status(); });
      created[i] = runtime::CudaCommunicator::create(
          std::move(exchanges[i]), pair.devices[i], {.make = make_heap, .by_nvlink = pair.by_nvlink},
          pair.options, pair.fallback ? pair.fallback(rank) : nullptr);
      // When putting it back is what fails there is nobody to tell.
      if (fake_cuda::failed_call() != "cudaSetDevice") {
        EXPECT_EQ(fake_cuda::current_device(), 0) << "the thread's device was not put back";
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return created;
}

// A device's memory.
class FakeMemory {
 public:
  FakeMemory(int device, std::size_t bytes) {
    EXPECT_EQ(cudaSetDevice(device), cudaSuccess);
    EXPECT_EQ(cudaMalloc(&memory_, bytes), cudaSuccess);
    EXPECT_EQ(cudaSetDevice(0), cudaSuccess);
  }
  FakeMemory(const FakeMemory&) = delete;
  ~FakeMemory() { static_cast<void>(cudaFree(memory_)); }
  void* get() const { return memory_; }

 private:
  void* memory_ = nullptr;
};

}  // namespace nearlight::test
