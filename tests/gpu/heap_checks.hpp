// What every heap on GPUs promises, checked by the copy engines.
#pragma once

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "memory/heap.hpp"
#include "tests/support/gpu_support.hpp"

namespace nearlight::test {

// A stream of this thread's device.
class CopyStream {
 public:
  CopyStream() { EXPECT_CUDA(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking)); }
  CopyStream(const CopyStream&) = delete;
  ~CopyStream() { EXPECT_CUDA(cudaStreamDestroy(stream_)); }

  void fill(char* at, int value, std::size_t bytes) const {
    EXPECT_CUDA(cudaMemsetAsync(at, value, bytes, stream_));
    EXPECT_CUDA(cudaStreamSynchronize(stream_));
  }
  void copy(char* to, const char* from, std::size_t bytes) const {
    EXPECT_CUDA(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream_));
    EXPECT_CUDA(cudaStreamSynchronize(stream_));
  }
  std::vector<char> read(const char* at, std::size_t bytes) const {
    std::vector<char> data(bytes, 'x');
    EXPECT_CUDA(cudaMemcpyAsync(data.data(), at, bytes, cudaMemcpyDeviceToHost, stream_));
    EXPECT_CUDA(cudaStreamSynchronize(stream_));
    return data;
  }

 private:
  cudaStream_t stream_ = nullptr;
};

inline bool all_are(const std::vector<char>& data, char value) {
  return std::all_of(data.begin(), data.end(), [value](char byte) { return byte == value; });
}

// All that a heap promises, for a rank whose device is current. `meet` is a barrier of the ranks' threads.
inline void expect_working(const memory::Heap& heap, const char* kind, int rank, int nranks,
                           std::size_t bytes, const std::function<void()>& meet) {
  const memory::HeapView& view = heap.view();
  EXPECT_STREQ(heap.kind(), kind);
  EXPECT_EQ(view.rank, rank);
  EXPECT_EQ(view.nranks, nranks);
  EXPECT_EQ(view.bytes, bytes);
  EXPECT_GE(view.stride, bytes);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(view.base) % 4096, 0u);
  const CopyStream stream;
  for (int peer = 0; peer < nranks; ++peer) {
    EXPECT_TRUE(all_are(stream.read(view.part(peer), bytes), 0))
        << "rank " << peer << "'s part, seen by " << rank;
  }
  meet();
  // Every rank writes a stripe of its own into everyone's part, the last bytes included.
  const std::size_t stripe = bytes / static_cast<std::size_t>(nranks);
  const auto begin = [&](int writer) { return static_cast<std::size_t>(writer) * stripe; };
  const auto end = [&](int writer) { return writer + 1 == nranks ? bytes : begin(writer + 1); };
  for (int peer = 0; peer < nranks; ++peer) {
    stream.fill(view.part(peer) + begin(rank), 10 * peer + rank + 1, end(rank) - begin(rank));
  }
  meet();
  for (int writer = 0; writer < nranks; ++writer) {
    const auto seen = stream.read(view.mine() + begin(writer), end(writer) - begin(writer));
    EXPECT_TRUE(all_are(seen, static_cast<char>(10 * rank + writer + 1)))
        << "written by " << writer << " to " << rank;
  }
  meet();
  // And reads from everyone's.
  for (int peer = 0; peer < nranks; ++peer) {
    const auto seen = stream.read(view.part(peer) + begin(rank), end(rank) - begin(rank));
    EXPECT_TRUE(all_are(seen, static_cast<char>(10 * peer + rank + 1)))
        << "read by " << rank << " from " << peer;
  }
  meet();
  // By the copy engines.
  const int next = (rank + 1) % nranks;
  stream.copy(view.part(next) + begin(rank), view.mine() + begin(rank), end(rank) - begin(rank));
  meet();
  const int previous = (rank + nranks - 1) % nranks;
  const auto seen = stream.read(view.mine() + begin(previous), end(previous) - begin(previous));
  EXPECT_TRUE(all_are(seen, static_cast<char>(10 * previous + previous + 1))) << "copied by " << previous;
}

}  // namespace nearlight::test
