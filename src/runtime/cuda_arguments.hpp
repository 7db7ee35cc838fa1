// Whether the pointers and the stream of a call belong to the rank's GPU.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/status.hpp"
#include "runtime/named_buffer.hpp"

namespace nearlight::runtime {

// CUDA is asked about a pointer or a stream when it is first seen, and in check mode always: what passed is
// kept in a small table, so that a call with buffers that were used before asks nothing. Pointers may be
// asked about while a stream captures, the stream then may not: it is asked about by the first call that does
// not capture. The rank's device must be current. One thread at a time.
class CudaArguments {
 public:
  CudaArguments() = default;
  CudaArguments(int device, bool always) : device_(device), always_(always) {}
  // Check mode.
  bool looks_always() const { return always_; }

  // Not null where there are bytes; nothing is asked of a buffer of 0. In check mode the last byte is looked
  // at too. Code::invalid_argument names the argument.
  Status check(const void* send, std::size_t send_bytes, const void* recv, std::size_t recv_bytes,
               cudaStream_t stream) {
    if (send_bytes == 0) send = nullptr;
    if (recv_bytes == 0) recv = nullptr;
    if (!always_ && seen(send) && seen(recv) && seen(stream)) return {};
    return ask(send, send_bytes, recv, recv_bytes, stream);
  }
  // The same of any number of buffers; those that are null are not looked at.
  Status check(std::span<const NamedBuffer> buffers, cudaStream_t stream);
  // Of a call without buffers.
  Status check_stream(cudaStream_t stream) {
    return !always_ && seen(stream) ? Status() : ask(nullptr, 0, nullptr, 0, stream);
  }

 private:
  static constexpr std::size_t kEntries = 256;

  static std::size_t place(const void* what) {
    // Buffers are often aligned to large powers of two: the multiplication spreads all bits.
    return static_cast<std::size_t>((reinterpret_cast<std::uintptr_t>(what) * 0x9e3779b97f4a7c15u) >> 56);
  }
  bool seen(const void* what) const { return what == nullptr || seen_[place(what)] == what; }
  void remember(const void* what) { seen_[place(what)] = what; }

  // A null pointer is not asked about.
  Status ask(const void* send, std::size_t send_bytes, const void* recv, std::size_t recv_bytes,
             cudaStream_t stream);
  Status ask_buffer(const char* name, const char* end_name, const void* pointer, std::size_t bytes) const;
  Status ask_pointer(const char* name, const void* pointer) const;
  Status ask_stream(cudaStream_t stream);

  int device_ = 0;
  bool always_ = false;
  std::array<const void*, kEntries> seen_{};
};

}  // namespace nearlight::runtime
