// Rows that a group of several threads holds in registers: the GPU's variants on CPU threads, in teams of one
// and of several groups, without a communicator.
#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <cstring>
#include <memory>
#include <thread>
#include <type_traits>
#include <vector>

#include <nearlight/detail/exec/host_space.hpp>
#include <nearlight/detail/exec/lane_coop.hpp>
#include "algorithm/fused_rows.hpp"
#include "algorithm/sentinel_cell.hpp"
#include "runtime/fused_call.hpp"
#include "tests/support/counts_arrivals.hpp"
#include "tests/support/fused.hpp"
#include "tests/support/problems.hpp"

namespace nearlight::algorithm {
namespace {

using exec::HostSpace;
using test::CountsArrivals;
using test::FusedProblem;

// What the threads of a team share.
struct TeamMemory {
  explicit TeamMemory(int threads) : slots(static_cast<std::size_t>(threads)), barrier(threads) {}
  std::vector<float> slots;
  std::barrier<> barrier;
};
struct LaneTeam {
  TeamMemory* memory;
  int thread;
  void begin() {}
  float sum(float mine) {
    memory->slots[static_cast<std::size_t>(thread)] = mine;
    memory->barrier.arrive_and_wait();
    float all = 0;
    for (const float slot : memory->slots) all += slot;
    memory->barrier.arrive_and_wait();
    return all;
  }
};

struct Shape {
  int ranks, lanes;
  std::uint32_t teams, spread, at_once;
  std::uint32_t packets;
};

// One group's memory of a rank.
struct Group {
  protocol::RegionState<HostSpace> state{};
  std::unique_ptr<std::barrier<>> barrier;
};
struct Rank {
  HostSpace::Word abort = 0, claim = 0, valid = 0;
  protocol::FaultRecord record{};
  std::vector<Group> groups;
  std::vector<std::unique_ptr<TeamMemory>> teams;
  std::vector<std::uint16_t> input, residual, weight, sum, output;
};

template <class T>
class Rows {
 public:
  Rows(const Shape& shape, const FusedProblem& problem) : shape_(shape), problem_(problem) {
    problem_.type = problem_.output_type = std::is_same_v<T, F16> ? DataType::f16 : DataType::bf16;
    layout_ = {shape.ranks, 32, 1, shape.packets, 0, 0};
    stride_ = layout_.region_bytes() * shape.teams * shape.spread;
    heap_.resize(stride_ * static_cast<std::size_t>(shape.ranks) / sizeof(Line));
    for (int rank = 0; rank < shape.ranks; ++rank) {
      for (std::uint32_t group = 0; group < shape.teams * shape.spread; ++group) {
        std::memset(region(group) + static_cast<std::size_t>(rank) * stride_ + layout_.packets_at(), 0xff,
                    layout_.packets_bytes());
      }
      Rank& own = ranks_.emplace_back();
      own.groups.resize(shape.teams * shape.spread);
      for (Group& group : own.groups) group.barrier = std::make_unique<std::barrier<>>(shape.lanes);
      for (std::uint32_t team = 0; team < shape.teams; ++team)
        own.teams.push_back(std::make_unique<TeamMemory>(shape.lanes * static_cast<int>(shape.spread)));
    }
  }

  // As many calls, one after the other; what is wrong with the last.
  template <int kMax, int kHeld, bool kOnce>
  std::string run(int calls) {
    arrivals_ = 0;
    std::string wrong;
    for (int call = 0; call < calls && wrong.empty(); ++call) {
      ++problem_.seed;
      std::vector<std::thread> threads;
      for (int rank = 0; rank < shape_.ranks; ++rank) {
        Rank& own = ranks_[static_cast<std::size_t>(rank)];
        own.input = problem_.input_of(rank);
        own.residual = problem_.residual_values();
        own.weight = problem_.weights();
        own.sum.assign(problem_.count(), 0xabcd);
        own.output.assign(problem_.count(), 0xabcd);
      }
      for (int rank = 0; rank < shape_.ranks; ++rank) {
        for (std::uint32_t group = 0; group < shape_.teams * shape_.spread; ++group) {
          for (int lane = 0; lane < shape_.lanes; ++lane)
            threads.emplace_back([=, this] { run_lane<kMax, kHeld, kOnce>(rank, group, lane); });
        }
      }
      for (std::thread& thread : threads) thread.join();
      for (const Rank& rank : ranks_) {
        if (rank.valid != 0) return "failed";
        if (wrong.empty()) wrong = problem_.check(rank.sum.data(), rank.output.data());
      }
    }
    return wrong;
  }

  // Of the last run() or run_alone(): how often what a thread waited for has arrived.
  int arrivals() const { return arrivals_; }
  // One call of rank 0, to which nobody comes.
  template <int kMax, int kHeld, bool kOnce>
  void run_alone() {
    arrivals_ = 0;
    timeout_ns_ = 50'000'000;
    Rank& own = ranks_[0];
    own.input = problem_.input_of(0);
    own.residual = problem_.residual_values();
    own.weight = problem_.weights();
    own.sum.assign(problem_.count(), 0xabcd);
    own.output.assign(problem_.count(), 0xabcd);
    std::vector<std::thread> threads;
    for (std::uint32_t group = 0; group < shape_.teams * shape_.spread; ++group) {
      for (int lane = 0; lane < shape_.lanes; ++lane)
        threads.emplace_back([=, this] { run_lane<kMax, kHeld, kOnce>(0, group, lane); });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(own.valid, 1u);
  }

 private:
  struct Line {
    alignas(128) std::byte bytes[128];
  };
  char* region(std::uint32_t group) {
    return reinterpret_cast<char*>(heap_.data()) + group * layout_.region_bytes();
  }

  template <int kMax, int kHeld, bool kOnce>
  void run_lane(int rank, std::uint32_t group, int lane) {
    Rank& own = ranks_[static_cast<std::size_t>(rank)];
    runtime::FusedCall call = problem_.call();
    call.input = own.input.data();
    call.residual = own.residual.data();
    call.weight = own.weight.data();
    call.residual_out = own.sum.data();
    call.output = own.output.data();
    route::FusedRoute route;
    route.spread = shape_.spread;
    route.at_once = shape_.at_once;
    using V = protocol::FlatRegion<HostSpace>;
    using Finish = RowFinish<HostSpace, T>;
    using Math = PackMath<HostSpace, T, ReduceOp::sum>;
    const V view(region(group), stride_, rank, layout_);
    const RowShare share{group / shape_.spread, shape_.teams, group % shape_.spread, shape_.spread};
    LaneTeam team{own.teams[share.team].get(), static_cast<int>(share.part) * shape_.lanes + lane};
    const Finish finish(runtime::rows_of(call, route));
    const protocol::Control<HostSpace> control{&own.abort, &own.claim, &own.valid, &own.record, timeout_ns_};
    Group& mine = own.groups[group];
    const exec::LaneCoop coop{lane, shape_.lanes, mine.barrier.get()};
    protocol::Session session(view, coop, mine.state, control, group, 0);
    // Nobody closes before all have read the epoch: the boundary of two kernels ([E3]).
    if constexpr (kHeld > 0) {
      const HeldRows<Math, SentinelCell<T>, kMax, kHeld, kOnce, V, Finish> work(view, lane, shape_.lanes,
                                                                                share, finish);
      work.run(session, team, CountsArrivals{&arrivals_});
    } else {
      streamed_rows<Math, SentinelCell<T>, kMax>(session, team, share, finish, CountsArrivals{&arrivals_});
    }
    session.close();
  }

  Shape shape_;
  FusedProblem problem_;
  protocol::RegionLayout layout_;
  std::size_t stride_ = 0;
  std::vector<Line> heap_;
  std::vector<Rank> ranks_;
  std::uint64_t timeout_ns_ = 60'000'000'000;
  std::atomic<int> arrivals_{0};
};

FusedProblem problem_of(int ranks, std::size_t tokens, std::size_t hidden) {
  FusedProblem problem;
  problem.nranks = ranks;
  problem.tokens = tokens;
  problem.hidden = hidden;
  return problem;
}

// 1032 elements are 129 vectors: some threads have one less than others, some none.
TEST(FusedRows, OneRowInOneRound) {
  EXPECT_EQ((Rows<Bf16>({2, 3, 1, 1, 1, 132}, problem_of(2, 1, 1032)).run<2, 44, true>(3)), "");
  EXPECT_EQ((Rows<F16>({2, 2, 1, 1, 1, 132}, problem_of(2, 1, 1024)).run<2, 64, true>(3)), "");
  EXPECT_EQ((Rows<Bf16>({3, 2, 1, 1, 1, 132}, problem_of(3, 1, 1032)).run<4, 66, true>(3)), "");
  EXPECT_EQ((Rows<Bf16>({3, 1, 1, 1, 1, 132}, problem_of(3, 1, 1032)).run<8, 132, true>(3)), "");
}

TEST(FusedRows, ARowOfSeveralGroups) {
  EXPECT_EQ((Rows<Bf16>({2, 2, 1, 2, 1, 72}, problem_of(2, 1, 1032)).run<2, 33, true>(3)), "");
  EXPECT_EQ((Rows<Bf16>({2, 1, 2, 4, 1, 40}, problem_of(2, 2, 1032)).run<2, 33, true>(3)), "");
  EXPECT_EQ((Rows<F16>({3, 1, 1, 4, 1, 40}, problem_of(3, 1, 1032)).run<8, 33, true>(3)), "");
}

TEST(FusedRows, ManyRowsInRounds) {
  for (const std::uint32_t at_once : {1u, 2u, 3u}) {
    EXPECT_EQ((Rows<Bf16>({2, 2, 2, 1, at_once, 129 * 3}, problem_of(2, 9, 1032)).run<2, 66, false>(2)), "");
    EXPECT_EQ((Rows<Bf16>({3, 1, 2, 2, at_once, 65 * 3}, problem_of(3, 7, 1032)).run<8, 66, false>(2)), "");
    EXPECT_EQ((Rows<F16>({3, 2, 1, 1, at_once, 129 * 3}, problem_of(3, 5, 1032)).run<4, 66, false>(2)), "");
  }
}

TEST(FusedRows, StreamedByManyThreads) {
  EXPECT_EQ((Rows<Bf16>({2, 3, 2, 1, 1, 40}, problem_of(2, 5, 1032)).run<8, 0, false>(2)), "");
  EXPECT_EQ((Rows<Bf16>({3, 2, 1, 2, 1, 40}, problem_of(3, 3, 1032)).run<8, 0, false>(2)), "");
}

// A wait in vain is no arrival.
TEST(FusedRows, NothingArrivesWhereNobodyComes) {
  Rows<Bf16> once({2, 3, 1, 1, 1, 132}, problem_of(2, 1, 1032));
  EXPECT_EQ((once.run<2, 44, true>(1)), "");
  EXPECT_EQ(once.arrivals(), 2 * 3);
  Rows<Bf16> alone({2, 3, 1, 1, 1, 132}, problem_of(2, 1, 1032));
  alone.run_alone<2, 44, true>();
  EXPECT_EQ(alone.arrivals(), 0);
  Rows<Bf16> streamed({2, 3, 1, 1, 1, 40}, problem_of(2, 1, 1032));
  streamed.run_alone<8, 0, false>();
  EXPECT_EQ(streamed.arrivals(), 0);
}

// Parts cover a row, whatever it is cut into.
TEST(FusedRows, PartsCoverARow) {
  for (std::uint32_t vecs = 128; vecs <= 2048; ++vecs) {
    for (const std::uint32_t parts : {1u, 2u, 4u, 8u}) {
      std::uint32_t next = 0;
      for (std::uint32_t part = 0; part < parts; ++part) {
        const RowShare share{0, 1, part, parts};
        EXPECT_EQ(share.first(vecs), next);
        EXPECT_GT(share.here(vecs), 0u);
        EXPECT_LE(share.here(vecs), RowShare::part_vecs(vecs, parts));
        next += share.here(vecs);
      }
      EXPECT_EQ(next, vecs);
    }
  }
}

}  // namespace
}  // namespace nearlight::algorithm
