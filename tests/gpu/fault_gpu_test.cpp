// What goes wrong ends in time, says what it was, and leaves GPU and process usable.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "bootstrap/in_process.hpp"
#include "runtime/create.hpp"
#include "runtime/cuda_communicator.hpp"
#include "tests/gpu/ranks.hpp"
#include "tests/gpu/setups.hpp"
#include "tests/support/gpu_support.hpp"

namespace nearlight::test {
namespace {

using route::Protocol;
using runtime::CallOptions;
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::AnyOf;
using testing::Eq;
using testing::HasSubstr;

constexpr std::size_t kBufferBytes = std::size_t{1} << 20;
constexpr int kAbsent = 1;  // the rank that does not come

milliseconds short_limit() { return patient(milliseconds(200)); }
runtime::Options short_options() {
  runtime::Options options = test_options();
  options.timeout = short_limit();
  return options;
}

void expect_healthy_gpu(Group& group) {
  for (Rank& rank : group.ranks()) {
    EXPECT_CUDA(cudaSetDevice(rank.device));
    EXPECT_CUDA(cudaDeviceSynchronize());
    EXPECT_CUDA(cudaGetLastError());
  }
}
void expect_works(Group& group, std::uint64_t seed) {
  group.run([&](Rank& rank) {
    ASSERT_OK(rank.prepare_reduce_check(
        rank.work({DataType::bf16, ReduceOp::sum, Values::general, seed}, 4099, false)));
  });
  group.expect_clean(1);
}

class FaultGpu : public testing::TestWithParam<Setup> {};

TEST_P(FaultGpu, ARankThatNeverCalls) {
  Group bystander(GetParam(), test_options(), kBufferBytes);
  ASSERT_TRUE(bystander.ok());
  for (const Protocol protocol : algorithm::kProtocols) {
    SCOPED_TRACE(algorithm::name_of(protocol));
    Group group(GetParam(), short_options(), kBufferBytes);
    ASSERT_TRUE(group.ok());
    if (!group.takes(protocol)) continue;
    // One CTA, so that the epoch is the number of the call.
    CallOptions options;
    options.protocol = protocol;
    options.grid = 1;
    options.threads = 32;
    const Pattern pattern{DataType::f32, ReduceOp::sum, Values::general, 8};
    constexpr std::uint64_t kCount = 20;
    group.run([&](Rank& rank) {
      for (int i = 0; i < 4; ++i)
        ASSERT_OK(rank.prepare_reduce_check(rank.work(pattern, kCount, false), options));
    });
    group.expect_clean(4);

    group.run([&](Rank& rank) {
      const Work work = rank.work(pattern, kCount, false);
      ASSERT_CUDA(prepare(work, rank.stream));
      ASSERT_CUDA(cudaStreamSynchronize(rank.stream));
      group.meet();
      if (rank.rank == kAbsent) return;
      const auto begin = Clock::now();
      ASSERT_OK(rank.all_reduce(work, options));
      ASSERT_CUDA(cudaStreamSynchronize(rank.stream));
      const auto took = Clock::now() - begin;
      EXPECT_GE(took, short_limit() * 9 / 10);
      EXPECT_LT(took, short_limit() + patient(seconds(2)));

      const Status status = rank.comm->status();
      EXPECT_EQ(status.code(), Code::timeout) << status.to_string();
      EXPECT_THAT(status.text(), HasSubstr("nothing from rank 1"));
      const auto fault = rank.comm->fault();
      ASSERT_TRUE(fault.has_value());
      EXPECT_EQ(fault->rank, rank.rank);
      EXPECT_EQ(fault->peer, kAbsent);
      EXPECT_EQ(fault->epoch, 5u);
      EXPECT_EQ(fault->region, 0u);
      EXPECT_EQ(fault->expected, 5u);
      // What the bank held: the call before the last one's flag; packets have none.
      EXPECT_EQ(fault->seen, protocol == Protocol::sentinel ? 0u : 3u);
      if (protocol == Protocol::ll) {
        EXPECT_LT(fault->slot, kCount / 2);  // two floats a slot
      } else if (protocol == Protocol::sentinel) {
        EXPECT_LT(fault->slot, kCount / 4);  // four floats a packet
      } else if (protocol == Protocol::ll128) {
        EXPECT_LT(fault->slot, 4u);  // a warp's lines
      } else {
        EXPECT_EQ(fault->slot, 0u);  // the first chunk
      }
      EXPECT_GT(fault->time_ns, 0u);

      const auto again = Clock::now();
      for (int i = 0; i < 10; ++i) EXPECT_EQ(rank.all_reduce(work, options).code(), Code::timeout);
      EXPECT_LT(Clock::now() - again, patient(milliseconds(100)));
    });

    // The late rank finds what the others had sent, and then nobody.
    Rank& late = group[kAbsent];
    ASSERT_CUDA(cudaSetDevice(late.device));
    EXPECT_OK(late.comm->status());
    const Work work = late.work(pattern, kCount, false);
    ASSERT_OK(late.prepare_reduce_check(work, options));
    const Report report = late.wait_and_read();
    EXPECT_EQ(report.wrong, 0u);
    EXPECT_OK(late.comm->status());
    ASSERT_OK(late.all_reduce(work, options));
    ASSERT_CUDA(cudaStreamSynchronize(late.stream));
    EXPECT_EQ(late.comm->status().code(), Code::timeout);
    ASSERT_TRUE(late.comm->fault().has_value());
    EXPECT_THAT(late.comm->fault()->peer, AnyOf(Eq(0), Eq(2)));

    expect_healthy_gpu(group);
    expect_works(bystander, 1);
  }
  Group next(GetParam(), test_options(), kBufferBytes);
  ASSERT_TRUE(next.ok());
  expect_works(next, 2);
}

// 1000 captured calls: the first one waits until the limit, the others end at once.
TEST_P(FaultGpu, AReplayedGraphRunsThrough) {
  Group group(GetParam(), short_options(), kBufferBytes);
  ASSERT_TRUE(group.ok());
  const int calls = scaled(1000, 60);
  group.run([&](Rank& rank) {
    const Work work = rank.work({DataType::bf16, ReduceOp::sum, Values::general, 6}, 9000, false);
    const Graph graph(rank, [&]() -> Status {
      for (int i = 0; i < calls; ++i) {
        CallOptions options;
        options.protocol = i % 3 == 2 ? Protocol::simple : Protocol::ll;
        options.grid = i % 2 == 0 ? 1 : 0;
        NL_TRY(rank.all_reduce(work, options));
      }
      return {};
    });
    ASSERT_TRUE(graph.ok());
    ASSERT_CUDA(prepare(work, rank.stream));
    ASSERT_CUDA(cudaStreamSynchronize(rank.stream));
    group.meet();
    if (rank.rank == kAbsent) return;
    const auto begin = Clock::now();
    ASSERT_CUDA(graph.launch());
    ASSERT_CUDA(cudaStreamSynchronize(rank.stream));
    EXPECT_LT(Clock::now() - begin, short_limit() + patient(seconds(2)));
    EXPECT_EQ(rank.comm->status().code(), Code::timeout) << rank.comm->status().to_string();
    // Once more: nothing is waited for any longer.
    const auto again = Clock::now();
    ASSERT_CUDA(graph.launch());
    ASSERT_CUDA(cudaStreamSynchronize(rank.stream));
    EXPECT_LT(Clock::now() - again, patient(milliseconds(500)));
  });
  expect_healthy_gpu(group);
}

TEST_P(FaultGpu, AbortEndsAWait) {
  runtime::Options options = test_options();
  options.timeout = seconds(60);
  for (const Protocol protocol : algorithm::kProtocols) {
    Group group(GetParam(), options, kBufferBytes);
    ASSERT_TRUE(group.ok());
    if (!group.takes(protocol)) continue;
    group.run([&](Rank& rank) {
      if (rank.rank == kAbsent) return;
      const Work work = rank.work({DataType::f32, ReduceOp::sum, Values::general, 8}, 5000, false);
      CallOptions call;
      call.protocol = protocol;
      ASSERT_CUDA(prepare(work, rank.stream));
      ASSERT_OK(rank.all_reduce(work, call));
      EXPECT_OK(rank.comm->status());
      const auto begin = Clock::now();
      std::thread other([&] {
        std::this_thread::sleep_for(milliseconds(50));
        rank.comm->abort();
      });
      ASSERT_CUDA(cudaStreamSynchronize(rank.stream));
      EXPECT_LT(Clock::now() - begin, patient(seconds(5)));
      EXPECT_GE(Clock::now() - begin, milliseconds(40));
      other.join();
      EXPECT_EQ(rank.comm->status().code(), Code::aborted) << rank.comm->status().to_string();
      EXPECT_EQ(rank.all_reduce(work, call).code(), Code::aborted);
    });
    expect_healthy_gpu(group);
  }
}

// An abort while nothing runs is known at once, and no call is begun any more.
TEST_P(FaultGpu, AbortBeforeACall) {
  Group group(GetParam(), test_options(), kBufferBytes);
  ASSERT_TRUE(group.ok());
  group.run([&](Rank& rank) {
    const Work work = rank.work({DataType::f32, ReduceOp::sum, Values::general, 8}, 100, false);
    ASSERT_OK(rank.prepare_reduce_check(work));
    ASSERT_CUDA(cudaStreamSynchronize(rank.stream));
    group.meet();
    rank.comm->abort();
    EXPECT_EQ(rank.comm->status().code(), Code::aborted);
    ASSERT_TRUE(rank.comm->fault().has_value());
    EXPECT_EQ(rank.all_reduce(work).code(), Code::aborted);
    ASSERT_CUDA(cudaStreamSynchronize(rank.stream));
  });
  for (Rank& rank : group.ranks()) EXPECT_EQ(rank.wait_and_read().wrong, 0u);
  expect_healthy_gpu(group);
}

TEST_P(FaultGpu, BadArgumentsAreNamedAndNothingIsWritten) {
  Group group(GetParam(), test_options(), kBufferBytes);
  ASSERT_TRUE(group.ok());
  const Pattern pattern{DataType::f32, ReduceOp::sum, Values::general, 8};
  group.run([&](Rank& rank) {
    const Work work = rank.work(pattern, 1000, false);
    auto* const send = static_cast<char*>(work.send);
    auto* const recv = static_cast<char*>(work.recv);
    ASSERT_CUDA(prepare(work, rank.stream));
    const auto refused = [&](const char* names, const void* from, void* to, std::size_t count,
                             DataType type = DataType::f32, ReduceOp op = ReduceOp::sum,
                             const CallOptions& options = {}) {
      const Status status = rank.comm->all_reduce(from, to, count, type, op, rank.stream, options);
      EXPECT_EQ(status.code(), Code::invalid_argument) << names;
      EXPECT_THAT(status.text(), HasSubstr(names));
    };
    refused("send", nullptr, recv, 10);
    refused("recv", send, nullptr, 10);
    refused("send", send + 2, recv, 10);
    refused("recv", send, recv + 1, 10);
    refused("send", send + 1, recv, 10, DataType::bf16);
    refused("overlap", send, send + 4, 10);
    refused("overlap", send + 36, send, 10);
    refused("type", send, recv, 10, static_cast<DataType>(12));
    refused("op: 6", send, recv, 10, DataType::f32, static_cast<ReduceOp>(6));
    refused("op: mulsum needs a factor", send, recv, 10, DataType::f32, ReduceOp::premul_sum);
    refused("count", send, recv, ~std::size_t{0} / 2);
    CallOptions options;
    options.grid = 100'000;
    refused("grid", send, recv, 10, DataType::f32, ReduceOp::sum, options);
    options = {};
    options.threads = 33;
    refused("threads", send, recv, 10, DataType::f32, ReduceOp::sum, options);
    options.threads = 1024;
    refused("threads", send, recv, 10, DataType::f32, ReduceOp::sum, options);
    options = {};
    options.protocol = Protocol::ll;
    options.first_slot = 12;
    refused("first_slot", send, recv, 10, DataType::f32, ReduceOp::sum, options);
    options.first_slot = 1u << 20;
    refused("first_slot", send, recv, 10, DataType::f32, ReduceOp::sum, options);
    // Nothing was written, and the ranks are still in step.
    ASSERT_CUDA(check_untouched(work, rank.report, rank.stream));
    ASSERT_OK(rank.comm->all_reduce(nullptr, nullptr, 0, DataType::f32, ReduceOp::sum, rank.stream, {}));
    ASSERT_OK(rank.prepare_reduce_check(work));
  });
  group.expect_clean(2);
  expect_healthy_gpu(group);
}

INSTANTIATE_TEST_SUITE_P(OneGpu, FaultGpu, testing::Values(Setup{Memory::cuda_vmm, 1, 3}), setup_name);
INSTANTIATE_TEST_SUITE_P(TwoGpus, FaultGpu, testing::Values(Setup{Memory::cuda_vmm, 2, 3}), setup_name);

// ---- creation -----------------------------------------------------------------------------------------

using Created = Result<std::unique_ptr<runtime::Communicator>>;

// One thread a rank; `make` creates rank r's communicator.
std::vector<Created> create_all(int nranks,
                                const std::function<Created(std::unique_ptr<Exchange>, int)>& make) {
  std::vector<Created> created;
  for (int rank = 0; rank < nranks; ++rank)
    created.emplace_back(failure(Code::internal_error, "not created"));
  auto exchanges = bootstrap::make_in_process_group(nranks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < nranks; ++rank) {
    threads.emplace_back([&, rank] {
      const auto at = static_cast<std::size_t>(rank);
      created[at] = make(std::move(exchanges[at]), rank);
    });
  }
  for (auto& thread : threads) thread.join();
  return created;
}

TEST(CreationFaultGpu, TwoRanksOnOneGpuAreRefusedWhereTheyMustNotShareIt) {
  static bool made_a_heap = false;
  const auto created = create_all(2, [](std::unique_ptr<Exchange> exchange, int) {
    const auto no_heap = [](void*, Exchange&, int, std::size_t,
                            Deadline) -> Result<std::unique_ptr<memory::Heap>> {
      made_a_heap = true;
      return failure(Code::internal_error, "no heap");
    };
    return runtime::CudaCommunicator::create(std::move(exchange), 0, {no_heap, nullptr, true},
                                             test_options());
  });
  for (const Created& one : created) {
    EXPECT_EQ(one.status().code(), Code::unsupported);
    EXPECT_THAT(one.status().text(), HasSubstr("ranks 0 and 1"));
    EXPECT_THAT(one.status().text(), HasSubstr("GPU"));
  }
  EXPECT_FALSE(made_a_heap);
  // One process may put them there on purpose.
  for (const Created& one : create_communicators({Memory::cuda_vmm, 1, 2}, test_options()))
    EXPECT_OK(one.status());
}

TEST(CreationFaultGpu, BadOptionsAreNamedOnAllRanks) {
  struct Bad {
    const char* names;
    Code code;
    std::function<void(runtime::Options&, int)> spoil;
  };
  const Bad all[] = {
      {"chunk_bytes", Code::invalid_argument, [](auto& options, int) { options.chunk_bytes = 24; }},
      {"slots", Code::invalid_argument, [](auto& options, int) { options.slots = 33; }},
      {"regions", Code::invalid_argument, [](auto& options, int) { options.regions = 5000; }},
      {"heap_offset", Code::invalid_argument, [](auto& options, int) { options.heap_offset = 8; }},
      {"timeout", Code::invalid_argument, [](auto& options, int) { options.timeout = milliseconds(0); }},
      // One rank alone: the others learn which.
      {"slots", Code::invalid_argument, [](auto& options, int rank) { options.slots = rank == 1 ? 33 : 64; }},
      {"regions", Code::invalid_usage, [](auto& options, int rank) { options.regions = rank == 1 ? 3 : 4; }},
      {"initial_epoch", Code::invalid_usage,
       [](auto& options, int rank) { options.initial_epoch = rank == 2 ? 1 : 0; }},
  };
  for (const Bad& bad : all) {
    const auto created = create_all(3, [&](std::unique_ptr<Exchange> exchange, int rank) {
      runtime::Options options = test_options();
      bad.spoil(options, rank);
      return runtime::create_cuda_local(std::move(exchange), 0, options);
    });
    for (const Created& one : created) {
      EXPECT_EQ(one.status().code(), bad.code) << bad.names << ": " << one.status().to_string();
      EXPECT_THAT(one.status().text(), HasSubstr(bad.names));
    }
  }
}

TEST(CreationFaultGpu, ADeviceThatIsNotThere) {
  const auto created = create_all(2, [](std::unique_ptr<Exchange> exchange, int rank) {
    return runtime::create_cuda_local(std::move(exchange), rank == 1 ? 99 : 0, test_options());
  });
  for (const Created& one : created) {
    EXPECT_EQ(one.status().code(), Code::invalid_argument) << one.status().to_string();
    EXPECT_THAT(one.status().text(), HasSubstr("device: 99"));
  }
  EXPECT_CUDA(cudaGetLastError());
}

TEST(CreationFaultGpu, NineRanksAndNoExchange) {
  const auto created = create_all(9, [](std::unique_ptr<Exchange> exchange, int) {
    return runtime::create_cuda_local(std::move(exchange), 0, test_options());
  });
  for (const Created& one : created) {
    EXPECT_EQ(one.status().code(), Code::invalid_argument);
    EXPECT_THAT(one.status().text(), HasSubstr("nranks: 9"));
  }
  EXPECT_EQ(runtime::create_cuda_local(nullptr, 0, test_options()).status().code(), Code::invalid_argument);
}

TEST(CreationFaultGpu, ARankThatDoesNotCome) {
  auto exchanges = bootstrap::make_in_process_group(2);
  runtime::Options options = test_options();
  options.create_timeout = milliseconds(300);
  const auto begin = Clock::now();
  const auto created = runtime::create_cuda_local(std::move(exchanges[0]), 0, options);
  EXPECT_LT(Clock::now() - begin, patient(seconds(5)));
  EXPECT_EQ(created.status().code(), Code::timeout) << created.status().to_string();
  EXPECT_THAT(created.status().text(), HasSubstr("1"));
}

}  // namespace
}  // namespace nearlight::test
