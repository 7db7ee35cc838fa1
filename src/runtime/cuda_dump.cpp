#include "runtime/cuda_dump.hpp"

#include <cstring>
#include <thread>

#include "base/deadline.hpp"
#include "runtime/capture_mode.hpp"
#include "runtime/cuda_call.hpp"

namespace nearlight::runtime {

namespace {

Status wait(cudaStream_t stream, Deadline deadline) {
  for (;;) {
    const cudaError_t error = cudaStreamQuery(stream);
    if (error != cudaErrorNotReady) return cuda_status("cudaStreamQuery", error);
    if (deadline.passed()) {
      return failure(
          Code::timeout,
          "copies out of the GPU's memory do not end: their stream may share a queue with one that "
          "hangs (CUDA_DEVICE_MAX_CONNECTIONS)");
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

}  // namespace

Result<std::unique_ptr<CudaReader>> CudaReader::create(int device) {
  std::unique_ptr<CudaReader> reader(new CudaReader);
  reader->device_ = device;
  NL_TRY_CUDA(
      cudaHostAlloc(reinterpret_cast<void**>(&reader->buffer_), kMostPieceBytes, cudaHostAllocPortable));
  NL_TRY_CUDA(cudaStreamCreateWithFlags(&reader->stream_, cudaStreamNonBlocking));
  return reader;
}

CudaReader::~CudaReader() {
  const DeviceGuard guard(device_);
  // Nobody to tell.
  if (stream_ != nullptr) (void)cudaStreamDestroy(stream_);
  if (buffer_ != nullptr) (void)cudaFreeHost(buffer_);
}

Status CudaReader::fetch(std::span<const Piece> pieces, std::chrono::milliseconds limit) {
  const std::lock_guard lock(mutex_);
  const DeviceGuard guard(device_);
  NL_TRY(guard.status());
  const RelaxedCapture relaxed;
  NL_TRY(relaxed.status());
  const Deadline deadline = Deadline::after(limit);
  std::size_t bytes = 0;
  for (const Piece& piece : pieces) bytes += piece.bytes;
  if (bytes > kMostPieceBytes) return failure(Code::internal_error, "%zu bytes are too many", bytes);
  NL_TRY(wait(stream_, deadline));  // those of an earlier call still have the buffer
  std::size_t at = 0;
  for (const Piece& piece : pieces) {
    NL_TRY_CUDA(cudaMemcpyAsync(buffer_ + at, piece.from, piece.bytes, cudaMemcpyDeviceToHost, stream_));
    at += piece.bytes;
  }
  NL_TRY(wait(stream_, deadline));
  at = 0;
  for (const Piece& piece : pieces) {
    std::memcpy(piece.to, buffer_ + at, piece.bytes);
    at += piece.bytes;
  }
  return {};
}

}  // namespace nearlight::runtime
