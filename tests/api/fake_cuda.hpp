// A stand-in for CUDA's run time and for the launch of the kernels: two devices whose memory is the host's.
// Every call is counted and can be made to fail, so that what a call of the library asks of CUDA, and what it
// does when CUDA refuses, can be tested where there is no GPU.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <map>
#include <string>

#include "base/types.hpp"

namespace nearlight::test::fake_cuda {

inline constexpr int kDevices = 2;

// A stream of `device`; non-zero `capture` is the id of the capture it is in. `busy`: what is enqueued does
// not end.
struct Stream {
  int device = 0;
  unsigned long long capture = 0;
  bool busy = false;
  unsigned long long id = 0;  // 0: by its address
  cudaStream_t handle() { return reinterpret_cast<cudaStream_t>(this); }
};

// Calls by name since the last reset; "launch" is a kernel's.
std::map<std::string, int> calls();
void reset_calls();
// The n-th call from now on fails (0: the next one); -1: none.
void fail_call(int n);
// Whether one was made to fail since then; its name.
std::string failed_call();

// Graphs go as soon as they retain something; while they are kept, when this ends it.
void keep_graphs(bool keep);

// What was allocated, registered or retained and not yet given back.
int live();
// Of the calling thread.
int current_device();

// What a CTA of that device may have of shared memory; 227 KiB unless told otherwise.
void give_shared(int of_device, std::size_t bytes);
// Whether the last products that were loaded may have the large part of it.
bool loaded_large_products();

// What the kernel that this thread launched last was to do.
struct Launch {
  ReduceOp op;
  std::uint64_t factor;  // bits
  std::uint32_t grid;    // of one rank alone: the limit that was given
  std::uint32_t late;    // 1: it lets the kernel after it in with its end
};
Launch launched();

}  // namespace nearlight::test::fake_cuda
