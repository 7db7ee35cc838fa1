// Calls that have one way, between ranks on GPUs: what the tests of all kinds share.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tests/gpu/ranks.hpp"
#include "tests/gpu/setups.hpp"
#include "tests/support/gpu_support.hpp"
#include "tests/support/one_way.hpp"

namespace nearlight::test {

// Those of one rank's call, in device memory, with a guard behind each. Made, filled, read and freed while no
// kernel runs: each of these may wait for all kernels, and those of ranks that share a GPU wait for each
// other.
template <OneWayProblem Problem>
class DeviceBuffers {
 public:
  DeviceBuffers(const Problem& problem, const Rank& rank, bool in_place = false)
      : problem_(problem), rank_(rank), in_place_(in_place) {
    for (const ProblemBuffer& buffer : problem.buffers_of(rank.rank)) {
      Bytes image(buffer.bytes + kGuard, std::byte{0xa5});
      std::copy(buffer.content.begin(), buffer.content.end(), image.begin());
      sizes_.push_back(buffer.bytes);
      EXPECT_CUDA(cudaMalloc(&memory_.emplace_back(nullptr), image.size()));
      EXPECT_CUDA(
          cudaMemcpyAsync(memory_.back(), image.data(), image.size(), cudaMemcpyDefault, rank_.stream));
      EXPECT_CUDA(cudaStreamSynchronize(rank_.stream));  // before the image goes
    }
  }
  DeviceBuffers(const DeviceBuffers&) = delete;
  ~DeviceBuffers() {
    for (void* const pointer : memory_) EXPECT_CUDA(cudaFree(pointer));
  }

  typename Problem::Call call() const { return problem_.call_on(memory_, rank_.rank, in_place_); }
  // In the order of written_by(); guards are looked at.
  std::vector<Bytes> results() const {
    for (std::size_t i = 0; i < memory_.size(); ++i) {
      const Bytes guard = copy_out(static_cast<const std::byte*>(memory_[i]) + sizes_[i], kGuard);
      EXPECT_TRUE(guard == Bytes(kGuard, std::byte{0xa5}))
          << problem_.in_words() << ": written past the end of buffer " << i;
    }
    std::vector<Bytes> all;
    for (const Written& one : problem_.written_by(call())) all.push_back(copy_out(one.data, one.bytes));
    return all;
  }

 private:
  static constexpr std::size_t kGuard = 256;
  Bytes copy_out(const void* from, std::size_t bytes) const {
    Bytes copy(bytes);
    EXPECT_CUDA(cudaMemcpyAsync(copy.data(), from, bytes, cudaMemcpyDefault, rank_.stream));
    EXPECT_CUDA(cudaStreamSynchronize(rank_.stream));
    return copy;
  }

  Problem problem_;
  const Rank& rank_;
  bool in_place_;
  std::vector<void*> memory_;
  std::vector<std::size_t> sizes_;
};

inline constexpr std::size_t kOneWayBufferBytes = std::size_t{1} << 16;  // for other calls between them

// Rank 0's results are looked at and kept in `first`, which the others' must be the same bits as; where each
// has its own, each is looked at. Of all ranks together.
template <OneWayProblem Problem>
void check_results(Group& group, const Rank& rank, const Problem& problem, const std::vector<Bytes>& results,
                   std::vector<Bytes>& first) {
  if (rank.rank == 0 || !problem.same_on_all()) {
    std::vector<const void*> places;
    for (const Bytes& one : results) places.push_back(one.data());
    EXPECT_EQ(problem.check_results(places, rank.rank), "") << "rank " << rank.rank;
  }
  if (rank.rank == 0) first = results;
  group.meet();
  EXPECT_TRUE(!problem.same_on_all() || results == first)
      << problem.in_words() << ": rank " << rank.rank << " has other bits";
  group.meet();
}

// All problems, one after the other.
template <OneWayProblem Problem>
void run_all(Group& group, const std::vector<Problem>& problems, const runtime::CallOptions& options = {},
             bool in_place = false) {
  std::vector<Bytes> first;
  group.run([&](Rank& rank) {
    for (Problem problem : problems) {
      problem.nranks = rank.nranks;
      const auto buffers = std::make_unique<DeviceBuffers<Problem>>(problem, rank, in_place);
      group.meet();
      EXPECT_OK(make(*rank.comm, buffers->call(), rank.stream, options));
      EXPECT_CUDA(cudaStreamSynchronize(rank.stream));
      EXPECT_OK(rank.comm->status());
      group.meet();
      check_results(group, rank, problem, buffers->results(), first);
    }
  });
}

// One graph of all of them, replayed, with all-reduces after those whose number `all_reduce_after` wants.
template <OneWayProblem Problem>
void replay_all(Group& group, const std::vector<Problem>& problems, bool (*all_reduce_after)(std::size_t)) {
  std::vector<std::vector<Bytes>> first(problems.size());
  const int replays = scaled(200, 3);
  group.run([&](Rank& rank) {
    std::vector<std::unique_ptr<DeviceBuffers<Problem>>> buffers;
    for (Problem problem : problems) {
      problem.nranks = rank.nranks;
      buffers.push_back(std::make_unique<DeviceBuffers<Problem>>(problem, rank));
    }
    group.meet();
    Graph graph(rank, [&]() -> Status {
      for (std::size_t i = 0; i < buffers.size(); ++i) {
        NL_TRY(make(*rank.comm, buffers[i]->call(), rank.stream));
        if (!all_reduce_after(i)) continue;
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
      Problem problem = problems[i];
      problem.nranks = rank.nranks;
      check_results(group, rank, problem, buffers[i]->results(), first[i]);
    }
    graph.destroy();
  });
}

// Run to run the same bits.
template <OneWayProblem Problem>
void expect_the_same_bits_every_time(Group& group, const std::vector<Problem>& problems) {
  group.run([&](Rank& rank) {
    for (Problem problem : problems) {
      problem.nranks = rank.nranks;
      const auto buffers = std::make_unique<DeviceBuffers<Problem>>(problem, rank);
      std::vector<Bytes> first;
      for (int i = 0; i < scaled(20, 3); ++i) {
        group.meet();
        EXPECT_OK(make(*rank.comm, buffers->call(), rank.stream));
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

// Every CTA gives up, and the record names the rank that does not come.
template <OneWayProblem Problem>
void expect_an_absent_rank_to_be_named(const Setup& setup, const Problem& shape, std::uint32_t packets = 0) {
  runtime::Options options = test_options();
  options.timeout = std::chrono::milliseconds(200);
  options.packets = packets;
  Group group(setup, options, kOneWayBufferBytes);
  ASSERT_TRUE(group.ok());
  group.run([&](Rank& rank) {
    Problem problem = shape;
    problem.nranks = rank.nranks;
    const auto buffers = std::make_unique<DeviceBuffers<Problem>>(problem, rank);
    const int absent = rank.nranks - 1;
    group.meet();
    if (rank.rank != absent) {
      const auto call = buffers->call();
      EXPECT_OK(make(*rank.comm, call, rank.stream));
      EXPECT_CUDA(cudaStreamSynchronize(rank.stream));
      const Status status = rank.comm->status();
      EXPECT_EQ(status.code(), Code::timeout) << status.to_string();
      EXPECT_NE(status.text().find(name_of(call.collective)), std::string::npos) << status.to_string();
      const auto fault = rank.comm->fault();
      ASSERT_TRUE(fault.has_value());
      EXPECT_EQ(fault->peer, absent);
      for (const Bytes& one : buffers->results()) {
        EXPECT_TRUE(one == Bytes(one.size(), std::byte{0xa5}))
            << problem.in_words() << ": written without the rank that did not come";
      }
    }
    group.meet();
  });
}

}  // namespace nearlight::test
