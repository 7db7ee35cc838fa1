// Kernels of one's own on channels: against the library's AllReduce, in graphs, with time limits, and what a
// message costs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "runtime/kernel_loop.hpp"
#include "tests/gpu/device_api.hpp"
#include "tests/gpu/ranks.hpp"
#include "tests/gpu/setups.hpp"
#include "tests/support/gpu_support.hpp"

namespace nearlight::test {
namespace {

using protocol::ChannelMemory;
using protocol::ChannelShape;

constexpr std::size_t kBufferBytes = std::size_t{1} << 20;
constexpr ChannelShape kShape{.channels = 2, .slots = 256, .packets = 256, .cells = 128};

class DeviceApiGpu : public testing::TestWithParam<Setup> {
 protected:
  // Channels of all ranks, with all kernels loaded.
  static std::vector<ChannelMemory> make(Group& group) {
    std::vector<ChannelMemory> memory(static_cast<std::size_t>(group.nranks()));
    group.run([&](Rank& rank) {
      ASSERT_CUDA(preload_device_api());
      auto made = rank.comm->make_channels(kShape, 0);
      ASSERT_OK(made.status());
      memory[static_cast<std::size_t>(rank.rank)] = *made;
    });
    return memory;
  }
  static std::vector<float> inputs_of(int rank, std::uint32_t count) {
    std::vector<float> values;
    for (std::uint32_t i = 0; i < count; ++i)
      values.push_back(1.0f / static_cast<float>(1 + i + 3 * static_cast<std::uint32_t>(rank)));
    return values;
  }
};

// To the same bits as the library's, which adds in rank order, too; in turns with it, so that neither spoils
// the other's epochs; replayed from a graph.
TEST_P(DeviceApiGpu, AllReduceHasTheLibrarysBits) {
  Group group(GetParam(), test_options(), kBufferBytes);
  ASSERT_TRUE(group.ok());
  const std::vector<ChannelMemory> memory = make(group);
  group.run([&](Rank& rank) {
    const ChannelMemory& mine = memory[static_cast<std::size_t>(rank.rank)];
    auto* const in = reinterpret_cast<float*>(rank.send);
    auto* const out = reinterpret_cast<float*>(rank.recv);
    for (const auto protocol : {ChannelProtocol::ll, ChannelProtocol::sentinel}) {
      for (const bool checked : {false, true}) {
        for (const std::uint32_t count : {1u, 32u, 33u, 256u}) {
          const std::vector<float> values = inputs_of(rank.rank, count);
          std::vector<float> own(count), library(count);
          const std::size_t bytes = count * sizeof(float);
          // A copy to or from the host that waits for a kernel holds up the copies of the other ranks of the
          // GPU, which that kernel waits for: none between the first call and the last.
          float* const out_of_library = out + kBufferBytes / 2 / sizeof(float);
          ASSERT_CUDA(cudaMemcpyAsync(in, values.data(), bytes, cudaMemcpyHostToDevice, rank.stream));
          ASSERT_CUDA(cudaStreamSynchronize(rank.stream));
          group.meet();
          ASSERT_CUDA(own_all_reduce(mine, protocol, checked, in, out, count, 5, nullptr, rank.stream));
          ASSERT_OK(
              rank.comm->all_reduce(in, out_of_library, count, DataType::f32, ReduceOp::sum, rank.stream));
          ASSERT_CUDA(cudaStreamSynchronize(rank.stream));
          group.meet();
          ASSERT_CUDA(cudaMemcpyAsync(own.data(), out, bytes, cudaMemcpyDeviceToHost, rank.stream));
          ASSERT_CUDA(
              cudaMemcpyAsync(library.data(), out_of_library, bytes, cudaMemcpyDeviceToHost, rank.stream));
          ASSERT_CUDA(cudaStreamSynchronize(rank.stream));
          ASSERT_EQ(own, library) << count << " floats, checked " << checked;
        }
      }
    }
    ASSERT_OK(rank.comm->status());
    const Graph graph(rank, [&]() -> Status {
      return ok_or("own_all_reduce",
                   own_all_reduce(mine, ChannelProtocol::ll, false, in, out, 256, 3, nullptr, rank.stream));
    });
    ASSERT_TRUE(graph.ok());
    for (int replay = 0; replay < 100; ++replay) ASSERT_CUDA(graph.launch());
    ASSERT_CUDA(cudaStreamSynchronize(rank.stream));
    ASSERT_OK(rank.comm->status());
  });
}

TEST_P(DeviceApiGpu, PutSignalWait) {
  Group group(GetParam(), test_options(), kBufferBytes);
  ASSERT_TRUE(group.ok());
  const std::vector<ChannelMemory> memory = make(group);
  group.run([&](Rank& rank) {
    ASSERT_CUDA(cudaMemsetAsync(rank.counter, 0, sizeof *rank.counter, rank.stream));
    ASSERT_CUDA(put_to_all(memory[static_cast<std::size_t>(rank.rank)], 200, rank.counter, rank.stream));
    std::uint64_t wrong = 1;
    ASSERT_CUDA(cudaStreamSynchronize(rank.stream));
    ASSERT_CUDA(cudaMemcpyAsync(&wrong, rank.counter, sizeof wrong, cudaMemcpyDeviceToHost, rank.stream));
    ASSERT_CUDA(cudaStreamSynchronize(rank.stream));
    EXPECT_EQ(wrong, 0u);
    ASSERT_OK(rank.comm->status());
  });
}

TEST_P(DeviceApiGpu, AnAbsentPeerIsNamedAndMistakesAreRecorded) {
  auto options = test_options();
  options.timeout = std::chrono::milliseconds(200);
  Group group(GetParam(), options, kBufferBytes);
  ASSERT_TRUE(group.ok());
  std::vector<ChannelMemory> memory = make(group);
  group.run([&](Rank& rank) {
    ASSERT_CUDA(cudaMemsetAsync(rank.counter, 0, sizeof *rank.counter, rank.stream));
    if (rank.rank == 1) {
      ASSERT_CUDA(wait_for(memory[1], 0, rank.counter, rank.stream));
    }
    std::uint64_t outcome = 0;
    ASSERT_CUDA(cudaStreamSynchronize(rank.stream));
    ASSERT_CUDA(cudaMemcpyAsync(&outcome, rank.counter, sizeof outcome, cudaMemcpyDeviceToHost, rank.stream));
    ASSERT_CUDA(cudaStreamSynchronize(rank.stream));
    if (rank.rank == 1) {
      EXPECT_EQ(outcome, 2u);
      const auto fault = rank.comm->fault();
      ASSERT_TRUE(fault.has_value());
      EXPECT_EQ(fault->status.code(), Code::timeout);
      EXPECT_EQ(fault->peer, 0);
      EXPECT_THAT(fault->status.text(), testing::HasSubstr("channel on rank 1: nothing from rank 0"));
    }
    // Those of before are dead, and say nothing.
    ASSERT_OK(rank.comm->reset());
    ASSERT_CUDA(wait_for(memory[static_cast<std::size_t>(rank.rank)], rank.rank == 0 ? 1 : 0, rank.counter,
                         rank.stream));
    ASSERT_CUDA(cudaStreamSynchronize(rank.stream));
    ASSERT_OK(rank.comm->status());
    auto made = rank.comm->make_channels(kShape, 0);
    ASSERT_OK(made.status());
    if (rank.rank == 1) {
      ASSERT_CUDA(advance_unheard(*made, rank.stream));
    }
    ASSERT_CUDA(cudaStreamSynchronize(rank.stream));
    if (rank.rank == 1) {
      EXPECT_EQ(rank.comm->status().code(), Code::invalid_usage);
      EXPECT_THAT(rank.comm->status().text(),
                  testing::HasSubstr("the epoch was ended before anything had been received from that rank"));
    }
  });
}

INSTANTIATE_TEST_SUITE_P(OneGpu, DeviceApiGpu, testing::ValuesIn(some_on_one_gpu()), setup_name);
INSTANTIATE_TEST_SUITE_P(TwoGpus, DeviceApiGpu, testing::ValuesIn(some_on_two_gpus()), setup_name);

// Between two ranks.
class DeviceApiPairGpu : public DeviceApiGpu {};
INSTANTIATE_TEST_SUITE_P(OneGpu, DeviceApiPairGpu, testing::ValuesIn(setups(1, {2})), setup_name);
INSTANTIATE_TEST_SUITE_P(TwoGpus, DeviceApiPairGpu, testing::ValuesIn(setups(2, {2})), setup_name);

// Prints what 8 bytes one way and an AllReduce of 128 bytes cost, beside the library's own in a kernel.
TEST_P(DeviceApiPairGpu, Times) {
  Group group(GetParam(), test_options(), kBufferBytes);
  ASSERT_TRUE(group.ok());
  const std::vector<ChannelMemory> memory = make(group);
  const auto laps = static_cast<std::uint32_t>(scaled(10'000, 100));
  constexpr std::uint32_t kCount = 32;
  group.run([&](Rank& rank) {
    const ChannelMemory& mine = memory[static_cast<std::size_t>(rank.rank)];
    auto* const in = reinterpret_cast<float*>(rank.send);
    auto* const out = reinterpret_cast<float*>(rank.recv);
    auto* const notes = reinterpret_cast<std::uint64_t*>(rank.recv + 4096);
    std::uint64_t told[3] = {};
    ASSERT_CUDA(cudaMemsetAsync(in, 0, kCount * sizeof(float), rank.stream));
    ASSERT_CUDA(ping_pong(mine, laps, notes, rank.stream));
    ASSERT_CUDA(
        own_all_reduce(mine, ChannelProtocol::ll_pair, false, in, out, kCount, laps, notes + 2, rank.stream));
    ASSERT_CUDA(cudaStreamSynchronize(rank.stream));
    ASSERT_CUDA(cudaMemcpyAsync(told, notes, sizeof told, cudaMemcpyDeviceToHost, rank.stream));
    ASSERT_CUDA(cudaStreamSynchronize(rank.stream));
    ASSERT_OK(rank.comm->status());
    EXPECT_EQ(told[1], 0u) << "messages that were wrong";
    group.meet();
    std::vector<double> library_ns;
    runtime::CallOptions options;
    options.protocol = route::Protocol::ll;
    ASSERT_OK(runtime::run_all_reduce_loop(*rank.comm, in, out, kCount, DataType::f32, ReduceOp::sum,
                                           {.samples = 100, .chain = 100}, library_ns, rank.stream, options));
    double mean = 0;
    for (const double ns : library_ns) mean += ns / static_cast<double>(library_ns.size());
    if (rank.rank == 0) {
      std::printf(
          "%s: 8 bytes one way %.0f ns; all-reduce of 128 bytes in a kernel: on a channel %.0f ns, the "
          "library's %.0f ns\n",
          name_of(GetParam()).c_str(), static_cast<double>(told[0]) / (2.0 * laps),
          static_cast<double>(told[2]) / laps, mean);
    }
  });
}

}  // namespace
}  // namespace nearlight::test
