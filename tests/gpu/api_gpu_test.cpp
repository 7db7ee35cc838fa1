// The C API on GPUs: results, captures in the strictest mode, pointers and streams that are not the rank's.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nearlight/nearlight.h>

#include <thread>
#include <vector>

#include "tests/support/gpu_support.hpp"

namespace nearlight::test {
namespace {

using testing::HasSubstr;

constexpr std::size_t kCount = 5000;

// Two ranks through the C API: rank r on device r % gpus, with a stream and two buffers each.
class ApiPair {
 public:
  explicit ApiPair(int gpus, int check = 0) : devices_{0, gpus > 1 ? 1 : 0} {
    nearlightConfig_t config = NEARLIGHT_CONFIG_INITIALIZER;
    config.timeout_ms = 60'000;
    config.check = check;
    const nearlightResult_t result = nearlightCommCreateCudaGroup(comms, 2, devices_, &config);
    EXPECT_EQ(result, nearlightSuccess) << nearlightGetLastError();
    ok_ = result == nearlightSuccess;
    for (int rank = 0; rank < 2; ++rank) {
      EXPECT_CUDA(cudaSetDevice(devices_[rank]));
      EXPECT_CUDA(cudaStreamCreateWithFlags(&streams[rank], cudaStreamNonBlocking));
      EXPECT_CUDA(cudaMalloc(reinterpret_cast<void**>(&send[rank]), kCount * sizeof(float)));
      EXPECT_CUDA(cudaMalloc(reinterpret_cast<void**>(&recv[rank]), kCount * sizeof(float)));
      const std::vector<float> ones(kCount, static_cast<float>(rank + 1));
      EXPECT_CUDA(cudaMemcpy(send[rank], ones.data(), kCount * sizeof(float), cudaMemcpyHostToDevice));
      clear(rank);
    }
  }
  ApiPair(const ApiPair&) = delete;
  ~ApiPair() {
    for (int rank = 0; rank < 2; ++rank) {
      EXPECT_EQ(nearlightCommDestroy(comms[rank]), nearlightSuccess) << nearlightGetLastError();
      EXPECT_CUDA(cudaSetDevice(devices_[rank]));
      EXPECT_CUDA(cudaFree(send[rank]));
      EXPECT_CUDA(cudaFree(recv[rank]));
      EXPECT_CUDA(cudaStreamDestroy(streams[rank]));
    }
  }

  bool ok() const { return ok_; }
  nearlightResult_t all_reduce(int rank) const {
    return nearlightAllReduce(send[rank], recv[rank], kCount, nearlightFloat32, nearlightSum, comms[rank],
                              streams[rank]);
  }
  void clear(int rank) const {
    EXPECT_CUDA(cudaSetDevice(devices_[rank]));
    EXPECT_CUDA(cudaMemset(recv[rank], 0, kCount * sizeof(float)));
    EXPECT_CUDA(cudaDeviceSynchronize());
  }
  void expect_sums() const { expect_everywhere(3.0f); }
  void expect_everywhere(float expected) const {
    for (int rank = 0; rank < 2; ++rank) {
      EXPECT_CUDA(cudaSetDevice(devices_[rank]));
      EXPECT_CUDA(cudaStreamSynchronize(streams[rank]));
      std::vector<float> sums(kCount);
      EXPECT_CUDA(cudaMemcpy(sums.data(), recv[rank], kCount * sizeof(float), cudaMemcpyDeviceToHost));
      for (const float value : sums) ASSERT_EQ(value, expected) << "rank " << rank;
    }
  }

  nearlightComm_t comms[2] = {};
  cudaStream_t streams[2] = {};
  float *send[2] = {}, *recv[2] = {};

 private:
  const int devices_[2];
  bool ok_ = false;
};

void expect_refused(nearlightResult_t result, const char* word) {
  EXPECT_EQ(result, nearlightInvalidArgument);
  EXPECT_THAT(nearlightGetLastError(), HasSubstr(word));
}

void calls_and_captures(int gpus) {
  for (const int check : {-1, 1}) {
    const ApiPair pair(gpus, check);
    ASSERT_TRUE(pair.ok());
    // Both ranks from one thread: nothing waits on the host.
    for (int rank = 0; rank < 2; ++rank) {
      ASSERT_EQ(pair.all_reduce(rank), nearlightSuccess) << nearlightGetLastError();
    }
    pair.expect_sums();
    // In global mode a capture forbids every call that might allocate or wait, by any thread.
    cudaGraphExec_t graphs[2] = {};
    for (int rank = 0; rank < 2; ++rank) {
      pair.clear(rank);
      cudaGraph_t graph = nullptr;
      ASSERT_CUDA(cudaStreamBeginCapture(pair.streams[rank], cudaStreamCaptureModeGlobal));
      EXPECT_EQ(pair.all_reduce(rank), nearlightSuccess) << nearlightGetLastError();
      ASSERT_CUDA(cudaStreamEndCapture(pair.streams[rank], &graph));
      ASSERT_CUDA(cudaGraphInstantiate(&graphs[rank], graph, 0));
      ASSERT_CUDA(cudaGraphDestroy(graph));
    }
    for (int replay = 0; replay < 3; ++replay) {
      for (int rank = 0; rank < 2; ++rank) ASSERT_CUDA(cudaGraphLaunch(graphs[rank], pair.streams[rank]));
      pair.expect_sums();
    }
    for (const cudaGraphExec_t graph : graphs) ASSERT_CUDA(cudaGraphExecDestroy(graph));
  }
}

TEST(ApiGpu, CallsAndCapturesInTheStrictestMode) { calls_and_captures(1); }
TEST(ApiGpuTwoGpus, CallsAndCapturesInTheStrictestMode) { calls_and_captures(2); }

// The very first look at a pointer and a stream may be inside a capture.
TEST(ApiGpu, TheFirstCallMayBeCaptured) {
  const ApiPair pair(1);
  ASSERT_TRUE(pair.ok());
  for (int rank = 0; rank < 2; ++rank) {
    cudaGraph_t graph = nullptr;
    ASSERT_CUDA(cudaStreamBeginCapture(pair.streams[rank], cudaStreamCaptureModeGlobal));
    EXPECT_EQ(pair.all_reduce(rank), nearlightSuccess) << nearlightGetLastError();
    ASSERT_CUDA(cudaStreamEndCapture(pair.streams[rank], &graph));
    std::size_t nodes = 0;
    ASSERT_CUDA(cudaGraphGetNodes(graph, nullptr, &nodes));
    EXPECT_EQ(nodes, 1u);  // one kernel and nothing else
    ASSERT_CUDA(cudaGraphDestroy(graph));
  }
}

TEST(ApiGpu, MemoryThatTheGpuCannotReachIsRefused) {
  int reachable = 0;
  ASSERT_CUDA(cudaDeviceGetAttribute(&reachable, cudaDevAttrPageableMemoryAccess, 0));
  if (reachable != 0) GTEST_SKIP() << "this GPU reaches all memory";
  const ApiPair pair(1);
  ASSERT_TRUE(pair.ok());
  std::vector<float> plain(kCount, 7.0f);
  const auto call = [&](const void* send, void* recv) {
    return nearlightAllReduce(send, recv, kCount, nearlightFloat32, nearlightSum, pair.comms[0],
                              pair.streams[0]);
  };
  expect_refused(call(plain.data(), pair.recv[0]), "send");
  expect_refused(call(pair.send[0], plain.data()), "recv");
  for (const float value : plain) ASSERT_EQ(value, 7.0f);
  for (int rank = 0; rank < 2; ++rank) ASSERT_EQ(pair.all_reduce(rank), nearlightSuccess);
  pair.expect_sums();
}

TEST(ApiGpuTwoGpus, PointersAndStreamsOfAnotherGpuAreNamed) {
  for (const int check : {-1, 1}) {
    const ApiPair pair(2, check);
    ASSERT_TRUE(pair.ok());
    const auto call = [&](const void* send, void* recv, cudaStream_t stream) {
      return nearlightAllReduce(send, recv, kCount, nearlightFloat32, nearlightSum, pair.comms[0], stream);
    };
    for (int round = 0; round < 2; ++round) {
      expect_refused(call(pair.send[1], pair.recv[0], pair.streams[0]), "send");
      EXPECT_THAT(nearlightGetLastError(), HasSubstr("device 1, this rank is on device 0"));
      expect_refused(call(pair.send[0], pair.recv[1], pair.streams[0]), "recv");
      expect_refused(call(pair.send[0], pair.recv[0], pair.streams[1]), "stream");
      for (int rank = 0; rank < 2; ++rank) ASSERT_EQ(pair.all_reduce(rank), nearlightSuccess);
      pair.expect_sums();
    }
  }
}

TEST(ApiGpu, PreMultipliedSumsCaptured) {
  const ApiPair pair(1);
  ASSERT_TRUE(pair.ok());
  cudaGraphExec_t graphs[2] = {};
  for (int rank = 0; rank < 2; ++rank) {
    const float factor = rank == 0 ? 10.0f : 100.0f;
    nearlightRedOp_t op = nearlightSum;
    ASSERT_EQ(nearlightRedOpCreatePreMulSum(&op, &factor, nearlightFloat32, nearlightScalarHostImmediate,
                                            pair.comms[rank]),
              nearlightSuccess)
        << nearlightGetLastError();
    cudaGraph_t graph = nullptr;
    ASSERT_CUDA(cudaStreamBeginCapture(pair.streams[rank], cudaStreamCaptureModeGlobal));
    EXPECT_EQ(nearlightAllReduce(pair.send[rank], pair.recv[rank], kCount, nearlightFloat32, op,
                                 pair.comms[rank], pair.streams[rank]),
              nearlightSuccess)
        << nearlightGetLastError();
    ASSERT_CUDA(cudaStreamEndCapture(pair.streams[rank], &graph));
    ASSERT_CUDA(cudaGraphInstantiate(&graphs[rank], graph, 0));
    ASSERT_CUDA(cudaGraphDestroy(graph));
    // The graph keeps what it was captured with.
    ASSERT_EQ(nearlightRedOpDestroy(op, pair.comms[rank]), nearlightSuccess);
  }
  for (int rank = 0; rank < 2; ++rank) ASSERT_CUDA(cudaGraphLaunch(graphs[rank], pair.streams[rank]));
  pair.expect_everywhere(210.0f);
  for (const cudaGraphExec_t graph : graphs) ASSERT_CUDA(cudaGraphExecDestroy(graph));
}

// What lies behind the end of an allocation is seen in check mode.
TEST(ApiGpu, CheckModeLooksAtTheEndOfABuffer) {
  int reachable = 0;
  ASSERT_CUDA(cudaDeviceGetAttribute(&reachable, cudaDevAttrPageableMemoryAccess, 0));
  if (reachable != 0) GTEST_SKIP() << "this GPU reaches all memory";
  const ApiPair pair(1, 1);
  ASSERT_TRUE(pair.ok());
  expect_refused(nearlightAllReduce(pair.send[0], pair.send[0], std::size_t{1} << 40, nearlightFloat32,
                                    nearlightSum, pair.comms[0], pair.streams[0]),
                 "the end of send");
}

// No memory of the device, and no growth of the host's, by calls.
TEST(ApiGpu, CallsTakeNoDeviceMemory) {
  const ApiPair pair(1);
  ASSERT_TRUE(pair.ok());
  const auto both = [&] {
    for (int rank = 0; rank < 2; ++rank) ASSERT_EQ(pair.all_reduce(rank), nearlightSuccess);
  };
  for (int i = 0; i < 10; ++i) both();
  pair.expect_sums();
  std::size_t before = 0, after = 0, total = 0;
  ASSERT_CUDA(cudaMemGetInfo(&before, &total));
  for (int i = 0; i < scaled(200, 20); ++i) both();
  pair.expect_sums();
  ASSERT_CUDA(cudaMemGetInfo(&after, &total));
  EXPECT_EQ(after, before);
}

}  // namespace
}  // namespace nearlight::test
