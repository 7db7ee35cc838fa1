// Runs what a kernel does, for every rank: compiled by nvcc as kernels, one block of 32 threads a rank, else
// as CPU threads, one a rank. The rungs are the same text for both.
#pragma once

#include <nearlight/device_memory.hpp>

#include <chrono>
#include <cstddef>
#include <cstdio>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#if defined(__CUDACC__)
#include <cuda_runtime.h>
#include <nearlight/device.cuh>
// In front of a function that kernels and the host call.
#define LADDER_FN __host__ __device__ inline
#else
#include <nearlight/device_host.hpp>
#define LADDER_FN inline
#endif

namespace ladder {

namespace device = nearlight::device;
using nearlight::Communicator;

#if defined(__CUDACC__)
template <class Protocol>
using Channel = device::Channel<Protocol, device::Cta, true>;

template <class Protocol, class T, class Body>
__global__ void kernel(device::Memory memory, T* data, Body body) {
  Channel<Protocol> ch(memory);
  body(ch, data);
}

inline void check(cudaError_t error) {
  if (error != cudaSuccess) throw std::runtime_error(cudaGetErrorString(error));
}
// Rank r on GPU r, as far as there are GPUs.
inline int gpu_of(int rank) {
  int gpus = 0;
  check(cudaGetDeviceCount(&gpus));
  return rank % gpus;
}
inline std::vector<Communicator> make_ranks(int nranks, const nearlight::Config& config) {
  std::vector<int> devices;
  for (int rank = 0; rank < nranks; ++rank) devices.push_back(gpu_of(rank));
  return Communicator::local(devices, config);
}

// What a rank reads and writes: memory that the CPU sees as well.
template <class T>
class Data {
 public:
  explicit Data(const std::vector<T>& values) : count_(values.size()) {
    check(cudaHostAlloc(reinterpret_cast<void**>(&data_), count_ * sizeof(T), cudaHostAllocPortable));
    for (std::size_t i = 0; i < count_; ++i) data_[i] = values[i];
  }
  Data(const Data&) = delete;
  ~Data() { (void)cudaFreeHost(data_); }
  T* get() { return data_; }
  std::vector<T> values() const { return {data_, data_ + count_}; }

 private:
  std::size_t count_;
  T* data_ = nullptr;
};

// All that allocates or loads, and so may wait for kernels that run, before anybody's kernel does.
template <class Protocol, class T, class Body>
class Runner {
 public:
  explicit Runner(int rank) {
    check(cudaSetDevice(gpu_of(rank)));
    cudaFuncAttributes attributes{};
    check(cudaFuncGetAttributes(&attributes, kernel<Protocol, T, Body>));
    check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
  }
  Runner(const Runner&) = delete;
  ~Runner() { (void)cudaStreamDestroy(stream_); }
  void run(const device::Memory& memory, T* data, const Body& body) {
    kernel<Protocol><<<1, 32, 0, stream_>>>(memory, data, body);
    check(cudaGetLastError());
    check(cudaStreamSynchronize(stream_));
  }

 private:
  cudaStream_t stream_ = nullptr;
};
#else
template <class Protocol>
using Channel = device::host::Channel<Protocol, device::host::Thread, true>;

inline std::vector<Communicator> make_ranks(int nranks, const nearlight::Config& config) {
  return Communicator::host_group(nranks, config);
}
template <class T>
class Data {
 public:
  explicit Data(const std::vector<T>& values) : values_(values) {}
  T* get() { return values_.data(); }
  const std::vector<T>& values() const { return values_; }

 private:
  std::vector<T> values_;
};
template <class Protocol, class T, class Body>
struct Runner {
  explicit Runner(int) {}
  void run(const device::Memory& memory, T* data, const Body& body) {
    Channel<Protocol> ch(memory);
    body(ch, data);
  }
};
#endif

// What became of one rank.
template <class T>
struct Rank {
  std::vector<T> data;
  nearlight::Status status;  // of its communicator, afterwards
  std::string error;         // what was thrown; "" when nothing was
};

struct Plan {
  int nranks = 2;
  device::Shape shape = {};
  std::chrono::milliseconds timeout{10'000};
  std::function<std::uint32_t(int rank)> peers = [](int) { return 0u; };
  int absent = -1;  // a rank that never comes to its channel
};

// body(channel, data) for every rank, whose data are at first inputs[rank]; then, in its thread, what else is
// to be done with the communicator and the data.
template <class Protocol, class T, class Body>
std::vector<Rank<T>> run(
    const Plan& plan, const std::vector<std::vector<T>>& inputs, const Body& body,
    const std::function<void(const Communicator& comm, const std::vector<T>& data)>& then = {}) {
  nearlight::Config config;
  config.timeout = plan.timeout;
  auto comms = make_ranks(plan.nranks, config);
  device::Shape shape = plan.shape;
  shape.checks = 1;
  std::vector<Rank<T>> ranks(comms.size());
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < comms.size(); ++r) {
    threads.emplace_back([&, r] {
      try {
        const int rank = static_cast<int>(r);
        Data<T> data(inputs[r]);
        Runner<Protocol, T, Body> runner(rank);
        const device::Channels channels(comms[r], shape, plan.peers(rank));
        if (rank != plan.absent) runner.run(channels.memory(), data.get(), body);
        ranks[r].data = data.values();
        if (then) then(comms[r], ranks[r].data);
        ranks[r].status = comms[r].status();
      } catch (const std::exception& error) {
        ranks[r].error = error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return ranks;
}

// Prints the first thing that is wrong; the program's exit status.
template <class T>
int expect(const char* rung, const std::vector<Rank<T>>& ranks, const std::vector<std::vector<T>>& expected) {
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    if (!ranks[r].error.empty() || !ranks[r].status) {
      std::printf("%s: rank %zu: %s%s\n", rung, r, ranks[r].error.c_str(), ranks[r].status.text.c_str());
      return 1;
    }
    for (std::size_t i = 0; i < expected[r].size(); ++i) {
      if (ranks[r].data[i] == expected[r][i]) continue;
      std::printf("%s: rank %zu has something else at %zu\n", rung, r, i);
      return 1;
    }
  }
  std::printf("%s: right on all %zu ranks\n", rung, ranks.size());
  return 0;
}

}  // namespace ladder
