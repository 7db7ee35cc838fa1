// What a graph keeps of a communicator is out of use when the graph is destroyed and has ended, not before:
// the next communicator takes it, and a kernel that still ran would find state words that say "go on".
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "runtime/cuda_control.hpp"
#include "tests/support/gpu_support.hpp"

namespace nearlight::test {
namespace {

using runtime::CudaControl;
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// Ten seconds at most.
template <class Holds>
bool soon(Holds&& holds) {
  for (const auto end = Clock::now() + patient(std::chrono::seconds(10)); Clock::now() < end;) {
    if (holds()) return true;
    std::this_thread::sleep_for(milliseconds(1));
  }
  return holds();
}

struct Gate {
  std::atomic<bool> reached{false}, open{false};
};

void CUDART_CB wait_at(void* gate) {
  auto* const at = static_cast<Gate*>(gate);
  at->reached = true;
  soon([at] { return at->open.load(); });
}

TEST(RetiredGpu, AGraphThatIsDestroyedWhileItRunsHoldsItToItsEnd) {
  constexpr CudaControl::Parts kParts{.regions = 3, .pipe_ends = 5};  // nobody else has so few
  ASSERT_CUDA(cudaSetDevice(0));
  auto made = CudaControl::create(0, kParts, 0);
  ASSERT_TRUE(made.ok()) << made.status().to_string();
  std::shared_ptr<CudaControl> control = *made;
  made = Status(Code::internal_error, "let go");
  const void* const states = control->states();
  const std::weak_ptr<CudaControl> watched = control;

  Gate gate;
  cudaStream_t stream = nullptr;
  ASSERT_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  ASSERT_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  ASSERT_CUDA(cudaLaunchHostFunc(stream, wait_at, &gate));
  const auto retained = CudaControl::retain_for_capture(control, stream);
  ASSERT_TRUE(retained.ok()) << retained.status().to_string();
  EXPECT_TRUE(*retained);
  ASSERT_CUDA(cudaMemsetAsync(control->claim(), 0, 4, stream));
  cudaGraph_t graph = nullptr;
  ASSERT_CUDA(cudaStreamEndCapture(stream, &graph));
  cudaGraphExec_t exec = nullptr;
  ASSERT_CUDA(cudaGraphInstantiate(&exec, graph, 0));
  ASSERT_CUDA(cudaGraphDestroy(graph));
  control.reset();
  EXPECT_FALSE(watched.expired()) << "the executable graph does not hold it";

  ASSERT_CUDA(cudaGraphLaunch(exec, stream));
  EXPECT_TRUE(soon([&] { return gate.reached.load(); }));
  ASSERT_CUDA(cudaGraphExecDestroy(exec));
  std::this_thread::sleep_for(milliseconds(100));  // a chance to do it wrong
  EXPECT_FALSE(watched.expired()) << "let go while the graph runs";
  auto other = CudaControl::create(0, kParts, 0);
  ASSERT_TRUE(other.ok()) << other.status().to_string();
  EXPECT_NE((*other)->states(), states);

  gate.open = true;
  ASSERT_CUDA(cudaStreamSynchronize(stream));
  EXPECT_TRUE(soon([&] { return watched.expired(); })) << "held although the graph has ended";
  // Used again rather than freed. It may come a moment after its last holder has gone.
  std::vector<std::shared_ptr<CudaControl>> held;
  EXPECT_TRUE(soon([&] {
    auto next = CudaControl::create(0, kParts, 0);
    if (!next.ok()) return false;
    held.push_back(*next);
    return held.back()->states() == states;
  }));
  held.clear();
  other = Status(Code::internal_error, "let go");
  ASSERT_CUDA(cudaStreamDestroy(stream));
  CudaControl::free_retired(0);
}

}  // namespace
}  // namespace nearlight::test
