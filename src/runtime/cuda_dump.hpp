// Reads a GPU's memory while its kernels run or hang.
#pragma once

#include <cuda_runtime_api.h>

#include <chrono>
#include <cstddef>
#include <memory>
#include <mutex>
#include <span>

#include "base/status.hpp"
#include "runtime/dump.hpp"

namespace nearlight::runtime {

// The copies go over a stream of their own, which waits for no other, into pinned memory. Both are made
// beforehand: to make them may wait for kernels that run.
class CudaReader {
 public:
  static Result<std::unique_ptr<CudaReader>> create(int device);
  CudaReader(const CudaReader&) = delete;
  // When nothing runs on the device any more.
  ~CudaReader();

  // kMostPieceBytes in all. Any thread. Code::timeout when the copies do not end within `limit`: a later call
  // finds them done, or says the same.
  Status fetch(std::span<const Piece> pieces, std::chrono::milliseconds limit);

 private:
  CudaReader() = default;

  int device_ = 0;
  std::mutex mutex_;  // guards what follows
  cudaStream_t stream_ = nullptr;
  char* buffer_ = nullptr;  // pinned
};

}  // namespace nearlight::runtime
