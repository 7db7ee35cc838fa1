// Calls that follow one another without a look from the host: graphs replayed, eager and graph mixed, sizes
// that change every time, ranks held up in the middle of a call, epochs that wrap.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <thread>
#include <vector>

#include "algorithm/one_shot.hpp"
#include "bootstrap/in_process.hpp"
#include "runtime/create.hpp"
#include "tests/gpu/ranks.hpp"
#include "tests/gpu/setups.hpp"
#include "tests/support/gpu_support.hpp"

namespace nearlight::test {
namespace {

using algorithm::DelayPoint;
using route::Protocol;
using runtime::CallOptions;

constexpr std::size_t kBufferBytes = std::size_t{8} << 20;

std::uint32_t random_for(std::uint64_t call, std::uint32_t salt, std::uint32_t below) {
  return mixed(salt, 0, call) % below;
}

// 16 B to 256 KiB, as many small as large.
std::uint64_t random_count(std::uint64_t call, DataType type) {
  const std::uint64_t most = std::uint64_t{16} << random_for(call, 1, 15);
  return (1 + random_for(call, 2, static_cast<std::uint32_t>(most))) / element_bytes(type) + 1;
}
CallOptions random_options(std::uint64_t call, DataType type) {
  CallOptions options;
  const std::uint32_t choice = random_for(call, 3, 5);
  if (choice == 0) options.protocol = Protocol::ll;
  if (choice == 1) options.protocol = Protocol::simple;
  if (choice == 2 && algorithm::carries(Protocol::sentinel, type)) options.protocol = Protocol::sentinel;
  if (random_for(call, 4, 3) == 0) options.grid = 1 + random_for(call, 5, 4);
  if (random_for(call, 6, 3) == 0) options.threads = 32u << random_for(call, 7, 5);
  // The smallest region has 512 slots.
  if (choice == 0 && options.threads != 0 && options.threads <= 128)
    options.first_slot = 8 * random_for(call, 11, 32);
  return options;
}
Pattern random_pattern(std::uint64_t call) {
  return {kDataTypes[random_for(call, 8, std::size(kDataTypes))],
          kReduceOps[random_for(call, 9, std::size(kReduceOps))], Values::general, call};
}
// Equal calls on all ranks; place and alignment are each rank's own.
Work random_work(const Rank& rank, std::uint64_t call) {
  const Pattern pattern = random_pattern(call);
  const std::uint32_t element = element_bytes(pattern.type);
  const std::uint32_t own = mixed(10, static_cast<std::uint32_t>(rank.rank), call);
  return rank.work(pattern, random_count(call, pattern.type), own % 3 == 0, own / 4 % 16 / element * element,
                   own / 64 % 16 / element * element, static_cast<std::uint32_t>(call));
}
std::string describe_random(std::uint32_t call) {
  const Pattern pattern = random_pattern(call);
  const CallOptions options = random_options(call, pattern.type);
  return std::string(name_of(pattern.type)) + " " + name_of(pattern.op) + ", " +
         std::to_string(random_count(call, pattern.type)) + " elements, " +
         (options.protocol ? algorithm::name_of(*options.protocol) : "by route") + ", grid " +
         std::to_string(options.grid) + ", threads " + std::to_string(options.threads) + ", first slot " +
         std::to_string(options.first_slot);
}

class OrderGpu : public testing::TestWithParam<Setup> {};

// One capture, replayed with new data each time: every epoch comes from the device.
TEST_P(OrderGpu, AGraphIsReplayedWithNewDataEachTime) {
  Group group(GetParam(), test_options(), kBufferBytes);
  ASSERT_TRUE(group.ok());
  const int replays = scaled(1000, 10);
  struct Call {
    DataType type;
    std::uint64_t count;
    std::optional<Protocol> protocol;
    bool in_place;
  };
  const std::vector<Call> calls = {{DataType::f32, 32, {}, false},
                                   {DataType::bf16, 4097, Protocol::ll, true},
                                   {DataType::i32, 3000, Protocol::simple, false},
                                   {DataType::bf16, 8192, Protocol::sentinel, false},
                                   {DataType::bf16, 1, {}, false}};
  group.run([&](Rank& rank) {
    const Graph graph(rank, [&]() -> Status {
      std::uint32_t id = 0;
      for (const Call& call : calls) {
        Work work = rank.work({call.type, ReduceOp::sum, Values::general, 1000 * id}, call.count,
                              call.in_place, 4, 8, id);
        work.counter = rank.counter;
        CallOptions options;
        options.protocol = call.protocol;
        NL_TRY(rank.prepare_reduce_check(work, options));
        ++id;
      }
      return ok_or("advance", advance(rank.counter, rank.stream));
    });
    ASSERT_TRUE(graph.ok());
    group.meet();
    for (int i = 0; i < replays; ++i) {
      ASSERT_CUDA(graph.launch());
      group.keep_pace(static_cast<std::uint64_t>(i));
    }
    // The graph must live until its work is done.
    ASSERT_CUDA(cudaStreamSynchronize(rank.stream));
  });
  group.expect_clean(calls.size() * static_cast<std::uint64_t>(replays),
                     [](std::uint32_t id) { return "call " + std::to_string(id) + " of the graph"; });
}

// Many captured calls with nothing between them: the chain that a decode step is.
TEST_P(OrderGpu, AGraphOfManyCallsInARow) {
  Group group(GetParam(), test_options(), kBufferBytes);
  ASSERT_TRUE(group.ok());
  constexpr std::uint32_t kCalls = 64;
  constexpr std::uint64_t kCount = 2048;
  constexpr std::size_t kStride = 4 * kCount + 4 * kGuardBytes;
  const int replays = scaled(100, 4);
  group.run([&](Rank& rank) {
    const auto each = [&](auto&& what) -> Status {
      for (std::uint32_t id = 0; id < kCalls; ++id) {
        Work work = rank.work({DataType::f32, ReduceOp::sum, Values::general, 5000 * id}, kCount, false,
                              id * kStride, id * kStride, id);
        work.counter = rank.counter;
        NL_TRY(what(work));
      }
      return {};
    };
    const Graph graph(rank, [&]() -> Status {
      NL_TRY(each([&](const Work& work) { return ok_or("prepare", prepare(work, rank.stream)); }));
      NL_TRY(each([&](const Work& work) {
        CallOptions options;
        if (work.case_id % 5 == 4) options.protocol = Protocol::simple;
        if (work.case_id % 5 == 2) options.protocol = Protocol::sentinel;
        return rank.all_reduce(work, options);
      }));
      NL_TRY(each([&](const Work& work) { return ok_or("check", check(work, rank.report, rank.stream)); }));
      return ok_or("advance", advance(rank.counter, rank.stream));
    });
    ASSERT_TRUE(graph.ok());
    group.meet();
    for (int i = 0; i < replays; ++i) {
      ASSERT_CUDA(graph.launch());
      if (i % 4 == 3) group.meet();
    }
    ASSERT_CUDA(cudaStreamSynchronize(rank.stream));
  });
  group.expect_clean(kCalls * static_cast<std::uint64_t>(replays));
}

TEST_P(OrderGpu, GraphsAndEagerCallsInterleave) {
  Group group(GetParam(), test_options(), kBufferBytes);
  ASSERT_TRUE(group.ok());
  const int steps = scaled(800, 16);
  group.run([&](Rank& rank) {
    const auto graph_of = [&](std::uint64_t first, int calls) {
      return std::make_unique<Graph>(rank, [&, first, calls]() -> Status {
        for (int i = 0; i < calls; ++i) {
          const std::uint64_t call = first + static_cast<std::uint64_t>(i);
          Work work = random_work(rank, call);
          work.counter = rank.counter;
          NL_TRY(rank.prepare_reduce_check(work, random_options(call, work.pattern.type)));
        }
        return ok_or("advance", advance(rank.counter, rank.stream));
      });
    };
    const auto first = graph_of(100, 1), second = graph_of(200, 5);
    ASSERT_TRUE(first->ok() && second->ok());
    group.meet();
    for (int step = 0; step < steps; ++step) {
      const auto call = static_cast<std::uint64_t>(step) + 1000;
      switch (random_for(call, 20, 4)) {
        case 0:
          ASSERT_CUDA(first->launch());
          break;
        case 1:
          ASSERT_CUDA(second->launch());
          break;
        default:
          ASSERT_OK(rank.prepare_reduce_check(random_work(rank, call),
                                              random_options(call, random_pattern(call).type)));
          break;
      }
      group.keep_pace(static_cast<std::uint64_t>(step));
    }
    ASSERT_CUDA(cudaStreamSynchronize(rank.stream));
  });
  std::uint64_t checks = 0;
  for (int step = 0; step < steps; ++step) {
    const std::uint32_t choice = random_for(static_cast<std::uint64_t>(step) + 1000, 20, 4);
    checks += choice == 1 ? 5 : 1;
  }
  group.expect_clean(checks, describe_random);
}

TEST_P(OrderGpu, AnotherSizeEachCall) {
  Group group(GetParam(), test_options(), kBufferBytes);
  ASSERT_TRUE(group.ok());
  const auto calls = static_cast<std::uint64_t>(scaled(10'000, 50));
  group.run([&](Rank& rank) {
    for (std::uint64_t call = 0; call < calls; ++call) {
      ASSERT_OK(rank.prepare_reduce_check(random_work(rank, call),
                                          random_options(call, random_pattern(call).type)));
      group.keep_pace(call);
    }
  });
  group.expect_clean(calls, describe_random);
}

// n+1 and 2n+1 calls back to back, n being the banks of a region, and other numbers of calls; nothing between
// them.
TEST_P(OrderGpu, BackToBackCalls) {
  Group group(GetParam(), test_options(), kBufferBytes);
  ASSERT_TRUE(group.ok());
  std::uint64_t checks = 0;
  for (const std::uint64_t count : {4u, 1024u, 16384u}) {
    const std::size_t stride = 4 * count + 4 * kGuardBytes;
    for (const std::uint32_t calls : {3u, 5u, 9u, 17u, 33u}) {
      for (const Protocol protocol : {Protocol::ll, Protocol::simple}) {
        CallOptions options;
        options.protocol = protocol;
        group.run([&](Rank& rank) {
          std::vector<Work> works;
          for (std::uint32_t id = 0; id < calls; ++id) {
            works.push_back(rank.work({DataType::f32, ReduceOp::sum, Values::general, checks + id}, count,
                                      false, id * stride, id * stride, id));
          }
          for (const Work& work : works) ASSERT_CUDA(prepare(work, rank.stream));
          for (const Work& work : works) ASSERT_OK(rank.all_reduce(work, options));
          for (const Work& work : works) ASSERT_CUDA(check(work, rank.report, rank.stream));
        });
        checks += calls;
      }
    }
  }
  group.expect_clean(checks);
}

// One rank is held up at a point inside a call, or before it, while the others go on to the next calls with
// other data.
TEST_P(OrderGpu, OneRankIsLate) {
  Group group(GetParam(), test_options(), kBufferBytes);
  ASSERT_TRUE(group.ok());
  constexpr std::uint32_t kCalls = 6;
  constexpr DelayPoint kPoints[] = {DelayPoint::before_publish, DelayPoint::after_arrival,
                                    DelayPoint::after_read};
  std::uint64_t checks = 0;
  const int rounds = scaled(3);
  for (int round = 0; round < rounds; ++round) {
    for (const std::uint64_t count : {8u, 1000u, 20000u}) {
      for (const Protocol protocol : {Protocol::ll, Protocol::simple}) {
        for (const DelayPoint point : kPoints) {
          for (int late = 0; late < group.nranks(); ++late) {
            const std::size_t stride = 4 * count + 4 * kGuardBytes;
            group.run([&](Rank& rank) {
              std::vector<Work> works;
              for (std::uint32_t id = 0; id < kCalls; ++id) {
                works.push_back(rank.work({DataType::f32, ReduceOp::sum, Values::general, checks + id}, count,
                                          id % 2 == 1, id * stride, id * stride, id));
              }
              for (const Work& work : works) ASSERT_CUDA(prepare(work, rank.stream));
              for (const Work& work : works) {
                CallOptions options;
                options.protocol = protocol;
                // All ranks take the kernel with delays, so that they cut the message alike.
                options.delay_point = static_cast<std::uint32_t>(point);
                options.delay_ns = rank.rank == late && work.case_id % 3 == 0 ? 200'000 : 0;
                if (rank.rank == late && work.case_id == 4) {
                  ASSERT_CUDA(hold(300'000, rank.stream));
                }
                ASSERT_OK(rank.all_reduce(work, options));
              }
              for (const Work& work : works) ASSERT_CUDA(check(work, rank.report, rank.stream));
            });
            checks += kCalls;
          }
        }
      }
    }
  }
  group.expect_clean(checks);
}

// Two streams of a rank, joined by events, are one order. Few ranks a GPU: a rank's two streams may fall on
// the hardware queue of another rank's and then wait for it, so ranks that share a GPU with many others have
// one stream each.
class JoinedStreamsGpu : public OrderGpu {};
TEST_P(JoinedStreamsGpu, TwoStreamsJoinedByEvents) {
  // A stream that shares a hardware queue with another rank's would wait behind that one's kernel for ever.
  Group group(GetParam(), test_options(), kBufferBytes, 2);
  ASSERT_TRUE(group.ok());
  const auto calls = static_cast<std::uint64_t>(scaled(200, 10));
  group.run([&](Rank& rank) {
    cudaEvent_t event = nullptr;
    ASSERT_CUDA(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    group.meet();
    for (std::uint64_t call = 0; call < calls; ++call) {
      cudaStream_t const stream = rank.streams[call % 2].get();
      ASSERT_CUDA(cudaStreamWaitEvent(stream, event, 0));
      const Work work = random_work(rank, call);
      ASSERT_CUDA(prepare(work, stream));
      ASSERT_OK(rank.all_reduce(work, random_options(call, work.pattern.type), stream));
      ASSERT_CUDA(check(work, rank.report, stream));
      ASSERT_CUDA(cudaEventRecord(event, stream));
      group.keep_pace(call);
    }
    for (const auto& stream : rank.streams) ASSERT_CUDA(cudaStreamSynchronize(stream.get()));
    EXPECT_CUDA(cudaEventDestroy(event));
  });
  group.expect_clean(calls, describe_random);
}

INSTANTIATE_TEST_SUITE_P(OneGpu, OrderGpu, testing::ValuesIn(some_on_one_gpu()), setup_name);
INSTANTIATE_TEST_SUITE_P(TwoGpus, OrderGpu, testing::ValuesIn(some_on_two_gpus()), setup_name);

std::vector<Setup> with_few_ranks(std::vector<Setup> setups) {
  std::erase_if(setups, [](const Setup& setup) { return setup.ranks > 3 * setup.gpus; });
  return setups;
}
INSTANTIATE_TEST_SUITE_P(OneGpu, JoinedStreamsGpu, testing::ValuesIn(with_few_ranks(some_on_one_gpu())),
                         setup_name);
INSTANTIATE_TEST_SUITE_P(TwoGpus, JoinedStreamsGpu, testing::ValuesIn(with_few_ranks(some_on_two_gpus())),
                         setup_name);

// ---- epochs -------------------------------------------------------------------------------------------

struct Start {
  Setup setup;
  std::uint32_t epoch;
};
void PrintTo(const Start& start, std::ostream* out) {
  *out << name_of(start.setup) << " from epoch " << start.epoch;
}

class EpochGpu : public testing::TestWithParam<Start> {};

TEST_P(EpochGpu, MixedCallsAcrossTheStart) {
  runtime::Options options = test_options();
  options.initial_epoch = GetParam().epoch;
  Group group(GetParam().setup, options, kBufferBytes);
  ASSERT_TRUE(group.ok());
  // Eager: enough calls that every region comes past the end of the numbers; several rounds a call in some.
  constexpr std::uint64_t kCalls = 60;
  const auto one = [](const Rank& rank, std::uint64_t call, CallOptions& options_of_call) {
    options_of_call.protocol = call % 2 == 0 ? Protocol::ll : Protocol::simple;
    options_of_call.grid = call % 3 == 0 ? 1 : 0;
    options_of_call.threads = call % 5 == 0 ? 32 : 0;
    const std::uint64_t counts[] = {4, 1000, 30'000};
    return rank.work({kDataTypes[call % std::size(kDataTypes)], ReduceOp::sum, Values::general, call},
                     counts[call % 7 % 3], call % 4 == 0, 8, 16, static_cast<std::uint32_t>(call));
  };
  group.run([&](Rank& rank) {
    for (std::uint64_t call = 0; call < kCalls; ++call) {
      CallOptions options_of_call;
      const Work work = one(rank, call, options_of_call);
      ASSERT_OK(rank.prepare_reduce_check(work, options_of_call));
      group.keep_pace(call);
    }
  });
  group.expect_clean(kCalls, [](std::uint32_t call) { return "call " + std::to_string(call); });
}

TEST_P(EpochGpu, AGraphAcrossTheStart) {
  runtime::Options options = test_options();
  options.initial_epoch = GetParam().epoch;
  Group group(GetParam().setup, options, kBufferBytes);
  ASSERT_TRUE(group.ok());
  constexpr int kReplays = 12;
  group.run([&](Rank& rank) {
    const Graph graph(rank, [&]() -> Status {
      for (const Protocol protocol : {Protocol::ll, Protocol::simple, Protocol::ll}) {
        Work work =
            rank.work({DataType::bf16, ReduceOp::sum, Values::general, static_cast<std::uint64_t>(protocol)},
                      3000, false);
        work.counter = rank.counter;
        CallOptions options_of_call;
        options_of_call.protocol = protocol;
        options_of_call.grid = 2;
        NL_TRY(rank.prepare_reduce_check(work, options_of_call));
      }
      return ok_or("advance", advance(rank.counter, rank.stream));
    });
    ASSERT_TRUE(graph.ok());
    group.meet();
    for (int i = 0; i < kReplays; ++i) ASSERT_CUDA(graph.launch());
    ASSERT_CUDA(cudaStreamSynchronize(rank.stream));
  });
  group.expect_clean(3 * kReplays);
}

std::vector<Start> starts(int gpus, const std::vector<int>& ranks) {
  std::vector<Start> all;
  for (const int n : ranks) {
    for (const std::uint32_t epoch : {0x7ffffffeu, 0xfffffffdu, 0xfffffffeu, 0xffffffffu, 0xfffffff0u}) {
      all.push_back({{Memory::cuda_vmm, gpus, n}, epoch});
    }
  }
  return all;
}
std::string start_name(const testing::TestParamInfo<Start>& info) {
  return name_of(info.param.setup) + "_from_" + std::to_string(info.param.epoch);
}
INSTANTIATE_TEST_SUITE_P(OneGpu, EpochGpu, testing::ValuesIn(starts(1, {2, 5})), start_name);
INSTANTIATE_TEST_SUITE_P(TwoGpus, EpochGpu, testing::ValuesIn(starts(2, {2})), start_name);

// ---- creation -----------------------------------------------------------------------------------------

// Holds this rank up before each step that it takes together with the others.
class LateExchange final : public Exchange {
 public:
  LateExchange(std::unique_ptr<Exchange> inner, std::chrono::milliseconds late)
      : inner_(std::move(inner)), late_(late) {}
  int rank() const override { return inner_->rank(); }
  int nranks() const override { return inner_->nranks(); }
  Status all_gather(std::span<const std::byte> mine, std::span<std::byte> all, Deadline deadline) override {
    std::this_thread::sleep_for(late_);
    return inner_->all_gather(mine, all, deadline);
  }
  Status barrier(Deadline deadline) override {
    std::this_thread::sleep_for(late_);
    return inner_->barrier(deadline);
  }
  Result<UniqueFd> share_fd(int fd, int root, Deadline deadline) override {
    std::this_thread::sleep_for(late_);
    return inner_->share_fd(fd, root, deadline);
  }
  bool same_process() const override { return inner_->same_process(); }
  std::vector<pid_t> processes() const override { return inner_->processes(); }

 private:
  std::unique_ptr<Exchange> inner_;
  std::chrono::milliseconds late_;
};

// A rank whose creation is late must find the first packets of the ranks that were faster.
TEST(CreationGpu, TheFirstCallDoesNotWaitForALateRank) {
  constexpr int kRanks = 3;
  Group data({Memory::cuda_vmm, 1, kRanks}, test_options(), kBufferBytes);  // buffers and streams
  ASSERT_TRUE(data.ok());
  for (int late = 0; late < kRanks; ++late) {
    // Before anybody launches: a communicator's end waits for its GPU.
    for (Rank& rank : data.ranks()) rank.comm.reset();
    auto exchanges = bootstrap::make_in_process_group(kRanks);
    data.run([&](Rank& rank) {
      auto exchange = std::move(exchanges[static_cast<std::size_t>(rank.rank)]);
      if (rank.rank == late) {
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
        exchange = std::make_unique<LateExchange>(std::move(exchange), std::chrono::milliseconds(10));
      }
      auto created = runtime::create_cuda_local(std::move(exchange), rank.device, test_options());
      ASSERT_OK(created.status());
      rank.comm = std::move(created).value();
      for (std::uint64_t call = 0; call < 3; ++call) {
        ASSERT_OK(rank.prepare_reduce_check(random_work(rank, call)));
      }
    });
    data.expect_clean(3, describe_random);
  }
}

}  // namespace
}  // namespace nearlight::test
