// The fused AllReduce between ranks on GPUs.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/gpu/ranks.hpp"
#include "tests/gpu/setups.hpp"
#include "tests/support/fused.hpp"
#include "tests/support/gpu_support.hpp"

namespace nearlight::test {
namespace {

using runtime::CallOptions;
using runtime::FusedCall;
using Bytes = std::vector<std::byte>;

// Of one rank and one problem, in device memory. Made, filled, read and freed while no kernel runs: each of
// these may wait for all kernels, and those of ranks that share a GPU wait for each other.
class Buffers {
 public:
  Buffers(const FusedProblem& problem, const Rank& rank, bool in_place)
      : problem_(problem), rank_(rank), in_place_(in_place) {
    const std::size_t all = problem.count() * 2;
    for (auto [pointer, bytes] : {std::pair{&input_, all},
                                  {&residual_, all},
                                  {&weight_, problem.hidden * 2},
                                  {&sum_, all},
                                  {&output_, problem.output_bytes()},
                                  {&scale_, sizeof(float)}}) {
      EXPECT_CUDA(cudaMalloc(pointer, bytes));
    }
    fill();
  }
  Buffers(const Buffers&) = delete;
  ~Buffers() {
    for (void* const pointer : {input_, residual_, weight_, sum_, output_, scale_})
      EXPECT_CUDA(cudaFree(pointer));
  }

  void fill() {
    copy_in(input_, problem_.input_of(rank_.rank));
    copy_in(residual_, problem_.residual_values());
    copy_in(weight_, problem_.weights());
    EXPECT_CUDA(cudaMemcpyAsync(scale_, &problem_.scale, sizeof(float), cudaMemcpyDefault, rank_.stream));
    EXPECT_CUDA(cudaMemsetAsync(output_, 0xa5, problem_.output_bytes(), rank_.stream));
    EXPECT_CUDA(cudaMemsetAsync(sum_, 0xa5, problem_.count() * 2, rank_.stream));
    EXPECT_CUDA(cudaStreamSynchronize(rank_.stream));
  }
  FusedCall call() const {
    FusedCall call = problem_.call();
    call.input = input_;
    const bool same = problem_.output_bytes() == problem_.count() * 2;
    call.output = in_place_ && same ? input_ : output_;
    call.bias = call.weight = weight_;
    call.residual = problem_.residual ? residual_ : nullptr;
    call.residual_out = in_place_ && problem_.residual ? residual_ : sum_;
    call.scale = problem_.output_type != problem_.type ? static_cast<const float*>(scale_) : nullptr;
    return call;
  }
  // The sum, then the output.
  std::pair<Bytes, Bytes> results() const {
    const FusedCall made = call();
    return {copy_out(problem_.normalises() ? made.residual_out : made.output, problem_.count() * 2),
            copy_out(made.output, problem_.output_bytes())};
  }

 private:
  void copy_in(void* to, const std::vector<std::uint16_t>& values) {
    EXPECT_CUDA(cudaMemcpyAsync(to, values.data(), values.size() * 2, cudaMemcpyDefault, rank_.stream));
    EXPECT_CUDA(cudaStreamSynchronize(rank_.stream));  // before the values go
  }
  Bytes copy_out(const void* from, std::size_t bytes) const {
    Bytes copy(bytes);
    EXPECT_CUDA(cudaMemcpyAsync(copy.data(), from, bytes, cudaMemcpyDefault, rank_.stream));
    EXPECT_CUDA(cudaStreamSynchronize(rank_.stream));
    return copy;
  }

  FusedProblem problem_;
  const Rank& rank_;
  bool in_place_;
  void *input_ = nullptr, *residual_ = nullptr, *weight_ = nullptr, *sum_ = nullptr, *output_ = nullptr,
       *scale_ = nullptr;
};

// All problems, one after the other: rank 0's results are looked at, the others' must be the same bits.
void run_all(Group& group, const std::vector<FusedProblem>& problems, const CallOptions& options = {},
             bool in_place = false) {
  std::pair<Bytes, Bytes> first;
  group.run([&](Rank& rank) {
    for (FusedProblem problem : problems) {
      problem.nranks = rank.nranks;
      const auto buffers = std::make_unique<Buffers>(problem, rank, in_place);
      group.meet();
      EXPECT_OK(rank.comm->fused(buffers->call(), rank.stream, options));
      EXPECT_CUDA(cudaStreamSynchronize(rank.stream));
      EXPECT_OK(rank.comm->status());
      group.meet();
      const auto results = buffers->results();
      if (rank.rank == 0) {
        EXPECT_EQ(problem.check(results.first.data(), results.second.data()), "");
        first = results;
      }
      group.meet();
      EXPECT_TRUE(results == first) << problem.in_words() << ": rank " << rank.rank << " has other bits";
      group.meet();
    }
  });
}

// `number` chooses types, so that a list of shapes sees all of them.
FusedProblem problem_of(std::size_t tokens, std::size_t hidden, std::uint64_t number) {
  FusedProblem problem;
  problem.tokens = tokens;
  problem.hidden = hidden;
  problem.seed = number + 1;
  problem.type = number % 2 == 0 ? DataType::bf16 : DataType::f16;
  problem.output_type = number % 3 == 0 ? problem.type : number % 3 == 1 ? DataType::f8e4m3 : DataType::i8;
  problem.residual = number % 5 != 4;
  problem.special = number % 4 == 3;
  if (number % 7 == 6) {
    problem.collective = Collective::all_reduce_bias;
    problem.output_type = problem.type;
  }
  return problem;
}

class FusedGpu : public testing::TestWithParam<Setup> {};

constexpr std::size_t kBufferBytes = std::size_t{1} << 16;

// Those of models from 0.5 to 405 billion parameters, the ends, and one that fills no warp.
constexpr std::size_t kHidden[] = {1024, 1032, 1536, 2048, 2560, 2880,  3072,  3584, 4096,
                                   5120, 5376, 6144, 7168, 8192, 12288, 16376, 16384};

TEST_P(FusedGpu, EveryHiddenSize) {
  Group group(GetParam(), test_options(), kBufferBytes);
  ASSERT_TRUE(group.ok());
  std::vector<FusedProblem> problems;
  std::uint64_t number = 0;
  for (const std::size_t hidden : kHidden) {
    for (const std::size_t tokens : {1u, 3u}) problems.push_back(problem_of(tokens, hidden, number++));
  }
  if (test_scale() < 1) problems.resize(6);
  run_all(group, problems);
  run_all(group, problems, {}, true);
}

TEST_P(FusedGpu, ManyTokens) {
  Group group(GetParam(), test_options(), kBufferBytes);
  ASSERT_TRUE(group.ok());
  std::vector<FusedProblem> problems;
  std::uint64_t number = 0;
  for (const std::size_t tokens : {2u, 8u, 32u, 127u}) {
    for (const std::size_t hidden : {8192u, 2880u}) problems.push_back(problem_of(tokens, hidden, number++));
  }
  if (test_scale() < 1) {
    problems.resize(2);
  } else {
    problems.push_back(problem_of(2048, 4096, 0));
    problems.push_back(problem_of(2048, 16384, 1));
  }
  run_all(group, problems);
}

// Every way to cut rows gives the same sums; a norm may differ in its last bit, which check() allows.
TEST_P(FusedGpu, EverySpreadAndGrid) {
  Group group(GetParam(), test_options(), kBufferBytes);
  ASSERT_TRUE(group.ok());
  std::uint64_t number = 0;
  for (const std::uint32_t spread : {1u, 2u, 4u, 8u}) {
    for (const std::uint32_t grid : {0u, spread, 2 * spread}) {
      CallOptions options;
      options.spread = spread;
      options.grid = grid;
      const FusedProblem shape = problem_of(1, 8192, 0);
      if (!group[0].comm->explain_fused(shape.call(), options).ok()) continue;  // more CTAs than regions
      run_all(
          group,
          {problem_of(1, 1024, number), problem_of(2, 8192, number + 1), problem_of(5, 16384, number + 2)},
          options);
      number += 3;
    }
  }
  EXPECT_GE(number, 6u);
}

// A row that the packets of a region do not take at once goes in rounds.
TEST_P(FusedGpu, FewPackets) {
  for (const std::uint32_t packets : {96u, 512u}) {
    runtime::Options options = test_options();
    options.packets = packets;
    Group group(GetParam(), options, kBufferBytes);
    ASSERT_TRUE(group.ok());
    run_all(group, {problem_of(1, 1024, 0), problem_of(3, 8192, 1), problem_of(9, 16384, 3),
                    problem_of(2, 1032, 6)});
  }
}

// Across the wrap of the epochs.
TEST_P(FusedGpu, AcrossTheWrap) {
  runtime::Options options = test_options();
  options.initial_epoch = 0xfffffffau;
  Group group(GetParam(), options, kBufferBytes);
  ASSERT_TRUE(group.ok());
  std::vector<FusedProblem> problems;
  for (std::uint64_t number = 0; number < 12; ++number)
    problems.push_back(problem_of(number % 3 + 1, number % 2 == 0 ? 4096 : 8192, number));
  run_all(group, problems);
}

// Graphs of calls of all sizes, with all-reduces between them, replayed.
TEST_P(FusedGpu, Graphs) {
  Group group(GetParam(), test_options(), kBufferBytes);
  ASSERT_TRUE(group.ok());
  std::pair<Bytes, Bytes> first;
  const int replays = scaled(200, 3);
  group.run([&](Rank& rank) {
    std::vector<FusedProblem> problems;
    std::vector<std::unique_ptr<Buffers>> buffers;
    for (const auto& [tokens, hidden] :
         {std::pair<std::size_t, std::size_t>{1, 8192}, {32, 8192}, {8, 4096}, {1, 1024}, {100, 2048}}) {
      FusedProblem& problem = problems.emplace_back(problem_of(tokens, hidden, problems.size()));
      problem.nranks = rank.nranks;
      buffers.push_back(std::make_unique<Buffers>(problem, rank, false));
    }
    group.meet();
    Graph graph(rank, [&]() -> Status {
      for (const auto& one : buffers) {
        NL_TRY(rank.comm->fused(one->call(), rank.stream));
        NL_TRY(rank.comm->all_reduce(rank.send, rank.recv, 4096, DataType::f32, ReduceOp::sum, rank.stream));
      }
      return {};
    });
    ASSERT_TRUE(graph.ok());
    group.meet();  // nothing runs while a graph is made: that may wait for kernels that wait for another rank
    for (int i = 0; i < replays; ++i) {
      EXPECT_CUDA(graph.launch());
      group.keep_pace(static_cast<std::uint64_t>(i));
    }
    EXPECT_CUDA(cudaStreamSynchronize(rank.stream));
    EXPECT_OK(rank.comm->status());
    group.meet();
    for (std::size_t i = 0; i < problems.size(); ++i) {
      const auto results = buffers[i]->results();
      if (rank.rank == 0) {
        EXPECT_EQ(problems[i].check(results.first.data(), results.second.data()), "");
        first = results;
      }
      group.meet();
      EXPECT_TRUE(results == first) << problems[i].in_words() << ": rank " << rank.rank;
      group.meet();
    }
    graph.destroy();
  });
}

// Run to run the same bits.
TEST_P(FusedGpu, TheSameBitsEveryTime) {
  Group group(GetParam(), test_options(), kBufferBytes);
  ASSERT_TRUE(group.ok());
  group.run([&](Rank& rank) {
    for (const std::size_t tokens : {1u, 8u, 70u}) {
      FusedProblem problem = problem_of(tokens, 8192, 0);
      problem.nranks = rank.nranks;
      const auto buffers = std::make_unique<Buffers>(problem, rank, false);
      std::pair<Bytes, Bytes> first;
      for (int i = 0; i < scaled(20, 3); ++i) {
        group.meet();
        EXPECT_OK(rank.comm->fused(buffers->call(), rank.stream));
        EXPECT_CUDA(cudaStreamSynchronize(rank.stream));
        group.meet();
        const auto results = buffers->results();
        if (i == 0) first = results;
        EXPECT_TRUE(results == first) << problem.in_words() << ", time " << i;
      }
      group.meet();
    }
  });
}

// Of a rank that does not come: every CTA of every row gives up, clusters too, and the record names it.
TEST_P(FusedGpu, ARankThatDoesNotCome) {
  for (const std::size_t tokens : {1u, 40u}) {
    runtime::Options options = test_options();
    options.timeout = std::chrono::milliseconds(200);
    Group group(GetParam(), options, kBufferBytes);
    ASSERT_TRUE(group.ok());
    group.run([&](Rank& rank) {
      FusedProblem problem = problem_of(tokens, 8192, 0);
      problem.nranks = rank.nranks;
      const auto buffers = std::make_unique<Buffers>(problem, rank, false);
      const int absent = rank.nranks - 1;
      group.meet();
      if (rank.rank != absent) {
        EXPECT_OK(rank.comm->fused(buffers->call(), rank.stream));
        EXPECT_CUDA(cudaStreamSynchronize(rank.stream));
        const Status status = rank.comm->status();
        EXPECT_EQ(status.code(), Code::timeout) << status.to_string();
        EXPECT_NE(status.text().find("all_reduce_rms_norm"), std::string::npos) << status.to_string();
        const auto fault = rank.comm->fault();
        ASSERT_TRUE(fault.has_value());
        EXPECT_EQ(fault->peer, absent);
      }
      group.meet();
    });
  }
}

// Plain memory is refused by name, but where the GPU reaches it: there it is as good as any.
TEST_P(FusedGpu, PointersOfTheHostAreNamed) {
  Group group(GetParam(), test_options(), kBufferBytes);
  ASSERT_TRUE(group.ok());
  group.run([&](Rank& rank) {
    int reachable = 0;
    ASSERT_CUDA(cudaDeviceGetAttribute(&reachable, cudaDevAttrPageableMemoryAccess, rank.device));
    FusedProblem problem = problem_of(1, 1024, 0);
    problem.nranks = rank.nranks;
    const Buffers buffers(problem, rank, false);
    struct alignas(16) Row {
      std::uint16_t elements[1024];
    };
    const auto weight = std::make_unique<Row>();
    const auto values = problem.weights();
    ASSERT_EQ(values.size(), std::size(weight->elements));
    std::copy(values.begin(), values.end(), weight->elements);
    FusedCall call = buffers.call();
    call.weight = weight->elements;
    group.meet();
    const Status status = rank.comm->fused(call, rank.stream);
    ASSERT_CUDA(cudaStreamSynchronize(rank.stream));
    EXPECT_OK(rank.comm->status());
    group.meet();
    if (reachable == 0) {
      EXPECT_EQ(status.code(), Code::invalid_argument);
      EXPECT_NE(status.text().find("weight"), std::string::npos) << status.to_string();
    } else {
      EXPECT_OK(status);
      const auto results = buffers.results();
      EXPECT_EQ(problem.check(results.first.data(), results.second.data()), "");
    }
    group.meet();  // nobody frees while a kernel of another rank runs
  });
}

// One rank alone adds and normalises.
TEST(FusedGpuAlone, OneRank) {
  Group group({Memory::cuda_vmm, 1, 1}, test_options(), kBufferBytes);
  ASSERT_TRUE(group.ok());
  run_all(group,
          {problem_of(1, 8192, 0), problem_of(3, 1032, 1), problem_of(100, 4096, 2), problem_of(2, 5120, 6)});
}

INSTANTIATE_TEST_SUITE_P(OneGpu, FusedGpu, testing::ValuesIn(all_on_one_gpu()), setup_name);
INSTANTIATE_TEST_SUITE_P(TwoGpus, FusedGpu, testing::ValuesIn(some_on_two_gpus()), setup_name);

}  // namespace
}  // namespace nearlight::test
