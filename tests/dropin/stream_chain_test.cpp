// The order of operations on several streams, on a stand-in for CUDA.
#include "dropin/stream_chain.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <string>

#include "tests/api/fake_cuda.hpp"
#include "tests/api/fake_group.hpp"

namespace nearlight::test {
namespace {

using dropin::StreamChain;

int count_of(const std::string& name) { return fake_cuda::calls()[name]; }

void operation(StreamChain& chain, fake_cuda::Stream& stream) {
  EXPECT_TRUE(chain.before(stream.handle()).ok());
  EXPECT_TRUE(chain.after(stream.handle()).ok());
}

TEST(StreamChain, WaitsOnlyWhereTheStreamChanges) {
  StreamChain chain;
  ASSERT_TRUE(chain.begin().ok());
  fake_cuda::Stream first, second;
  fake_cuda::reset_calls();
  operation(chain, first);
  operation(chain, first);
  EXPECT_EQ(count_of("cudaStreamWaitEvent"), 0);
  EXPECT_EQ(count_of("cudaEventRecord"), 2) << "nobody knows whether the stream is there later";
  operation(chain, second);
  EXPECT_EQ(count_of("cudaStreamWaitEvent"), 1);
  operation(chain, second);
  EXPECT_EQ(count_of("cudaStreamWaitEvent"), 1);
  operation(chain, first);
  EXPECT_EQ(count_of("cudaStreamWaitEvent"), 2);
}

// An event of a capture means nothing outside of it, nor in another one.
TEST(StreamChain, CapturesAreOnTheirOwn) {
  StreamChain chain;
  ASSERT_TRUE(chain.begin().ok());
  fake_cuda::Stream eager, captured{.capture = 7}, beside{.capture = 7}, other{.capture = 8};
  fake_cuda::reset_calls();
  operation(chain, eager);
  operation(chain, captured);
  EXPECT_EQ(count_of("cudaStreamWaitEvent"), 0);
  operation(chain, beside);
  EXPECT_EQ(count_of("cudaStreamWaitEvent"), 1);
  operation(chain, other);
  EXPECT_EQ(count_of("cudaStreamWaitEvent"), 1);
  operation(chain, eager);
  EXPECT_EQ(count_of("cudaStreamWaitEvent"), 1);
}

// The handle of a stream that is gone is given to the next one.
TEST(StreamChain, TheSameHandleIsNotTheSameStream) {
  StreamChain chain;
  ASSERT_TRUE(chain.begin().ok());
  fake_cuda::Stream stream{.id = 5};
  fake_cuda::reset_calls();
  operation(chain, stream);
  stream.id = 6;
  operation(chain, stream);
  EXPECT_EQ(count_of("cudaStreamWaitEvent"), 1);
}

TEST(StreamChain, JoinWaitsBothWays) {
  StreamChain chain;
  ASSERT_TRUE(chain.begin().ok());
  fake_cuda::Stream a, b, c;
  void* const streams[] = {a.handle(), b.handle(), c.handle()};
  fake_cuda::reset_calls();
  ASSERT_TRUE(chain.join(streams).ok());
  EXPECT_EQ(count_of("cudaEventRecord"), 3);
  EXPECT_EQ(count_of("cudaStreamWaitEvent"), 6);
  fake_cuda::reset_calls();
  ASSERT_TRUE(chain.join(streams).ok());
  EXPECT_EQ(count_of("cudaEventCreateWithFlags"), 0) << "its events are made once";
}

TEST(StreamChain, DrainHasALimit) {
  StreamChain chain;
  ASSERT_TRUE(chain.begin().ok());
  EXPECT_TRUE(chain.drain(Deadline::after_ms(1)).ok()) << "nothing was enqueued";
  fake_cuda::Stream stream;
  operation(chain, stream);
  EXPECT_TRUE(chain.drain(Deadline::after_ms(1000)).ok());
  stream.busy = true;
  operation(chain, stream);
  EXPECT_EQ(chain.drain(Deadline::after_ms(20)).code(), Code::timeout);
  stream.busy = false;
}

TEST(StreamChain, EveryRefusalOfCudaIsToldAndNothingStays) {
  const int live = fake_cuda::live();
  for (int n = 0;; ++n) {
    fake_cuda::reset_calls();
    fake_cuda::fail_call(n);
    fake_cuda::Stream first, second;
    void* const streams[] = {first.handle(), second.handle()};
    Status status;
    {
      StreamChain chain;
      const auto all = [&]() -> Status {
        NL_TRY(chain.begin());
        for (auto* const stream : {&first, &second}) {
          NL_TRY(chain.before(stream->handle()));
          NL_TRY(chain.after(stream->handle()));
        }
        return chain.join(streams);
      };
      status = all();
    }
    const std::string failed = fake_cuda::failed_call();
    fake_cuda::fail_call(-1);
    EXPECT_EQ(fake_cuda::live(), live);
    if (failed.empty() || failed == "cudaEventDestroy") {
      EXPECT_TRUE(status.ok()) << status.to_string();
      ASSERT_GT(n, 8) << "hardly anything was made to fail";
      return;
    }
    EXPECT_EQ(status.code(), Code::cuda_error) << failed;
  }
}

// What the drop-in asks for every all-reduce before it decides. The limit is for a busy machine.
TEST(Decision, CostsLittle) {
  auto created = create_pair({.options = {}, .on_rank_1 = {}, .fallback = {}});
  ASSERT_TRUE(created[0].ok()) << created[0].status().to_string();
  constexpr int kCalls = 100'000;
  double best = 1e9;
  for (int turn = 0; turn < 5; ++turn) {
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < kCalls; ++i) {
      const auto route =
          (*created[0])->explain_all_reduce(static_cast<std::size_t>(i), DataType::bf16, ReduceOp::sum);
      if (route.reason == nullptr) FAIL();
    }
    const std::chrono::duration<double, std::nano> spent = std::chrono::steady_clock::now() - begin;
    best = std::min(best, spent.count() / kCalls);
  }
  std::printf("the route of an all-reduce takes %.0f ns\n", best);
  EXPECT_LT(best, 5000);
}

}  // namespace
}  // namespace nearlight::test
