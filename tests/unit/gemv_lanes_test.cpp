// Products by groups of several threads, as the GPU has them: each thread is a team that works out tiles, and
// reduces what others have worked out. On CPU threads, without a communicator.
#include <gtest/gtest.h>

#include <barrier>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include <nearlight/detail/exec/host_space.hpp>
#include <nearlight/detail/exec/lane_coop.hpp>
#include "algorithm/gather_tokens.hpp"
#include "algorithm/gemv.hpp"
#include "algorithm/host/tile_product.hpp"
#include "runtime/gemv_call.hpp"
#include "tests/support/gemv.hpp"

namespace nearlight::algorithm {
namespace {

using exec::HostSpace;
using test::GemvProblem;

// A thread of several, which must be told what it works out before it does.
template <class T>
class LaneProduct : public host::SoloTileProduct<HostSpace, T> {
 public:
  using Base = host::SoloTileProduct<HostSpace, T>;
  LaneProduct(const exec::TileMatrices& what, int lane, int lanes)
      : Base(what), lane_(static_cast<std::uint32_t>(lane)), lanes_(static_cast<std::uint32_t>(lanes)) {}
  std::uint32_t team() const { return lane_; }
  std::uint32_t teams() const { return lanes_; }
  void start(std::uint32_t tile) { started_ = tile; }
  template <class Emit>
  void work_out(std::uint32_t tile, std::uint32_t next, Emit&& emit) {
    if (tile != started_) ADD_FAILURE() << "tile " << tile << " was not started";
    started_ = next;
    Base::work_out(tile, next, emit);
  }

 private:
  std::uint32_t lane_, lanes_;
  std::uint32_t started_ = exec::kNoTile;
};

struct Shape {
  int ranks, lanes;
  std::uint32_t groups, packets;
};

struct alignas(16) Line {
  std::byte bytes[16];
};
// One group's memory of a rank.
struct Group {
  protocol::RegionState<HostSpace> state{};
  std::unique_ptr<std::barrier<>> barrier;
  std::vector<exec::Vec> tokens;
};
struct Rank {
  HostSpace::Word abort = 0, claim = 0, valid = 0;
  protocol::FaultRecord record{};
  std::vector<Group> groups;
  std::vector<Line> input, weight, output;
};

class Lanes {
 public:
  Lanes(const Shape& shape, const GemvProblem& problem) : shape_(shape), problem_(problem) {
    problem_.nranks = shape.ranks;
    layout_ = {shape.ranks, 32, 1, shape.packets, 0, 0};
    stride_ = layout_.region_bytes() * shape.groups;
    heap_.resize(stride_ * static_cast<std::size_t>(shape.ranks) / sizeof(Cache));
    for (int rank = 0; rank < shape.ranks; ++rank) {
      Rank& own = ranks_.emplace_back();
      own.groups.resize(shape.groups);
      for (std::uint32_t group = 0; group < shape.groups; ++group) {
        std::memset(region(group) + static_cast<std::size_t>(rank) * stride_ + layout_.packets_at(), 0xff,
                    layout_.packets_bytes());
        own.groups[group].barrier = std::make_unique<std::barrier<>>(shape.lanes);
      }
    }
  }

  // As many calls, one after the other; what is wrong with the last.
  std::string run(int calls) {
    std::string wrong;
    for (int call = 0; call < calls && wrong.empty(); ++call) {
      ++problem_.seed;
      std::vector<std::thread> threads;
      for (int rank = 0; rank < shape_.ranks; ++rank) {
        Rank& own = ranks_[static_cast<std::size_t>(rank)];
        fill(own.input, problem_.input_of(rank));
        fill(own.weight, problem_.weight_of(rank));
        own.output.assign((problem_.tokens * problem_.out * 2 + 15) / 16, Line{});
      }
      for (int rank = 0; rank < shape_.ranks; ++rank) {
        for (std::uint32_t group = 0; group < shape_.groups; ++group) {
          for (int lane = 0; lane < shape_.lanes; ++lane)
            threads.emplace_back([=, this] { run_lane(rank, group, lane); });
        }
      }
      for (std::thread& thread : threads) thread.join();
      for (int rank = 0; rank < shape_.ranks && wrong.empty(); ++rank) {
        const Rank& own = ranks_[static_cast<std::size_t>(rank)];
        if (own.valid != 0) return "failed";
        wrong = problem_.check(own.output.data(), problem_.gathers ? rank : 0);
      }
    }
    return wrong;
  }

 private:
  struct alignas(128) Cache {
    std::byte bytes[128];
  };
  static void fill(std::vector<Line>& memory, const std::vector<std::uint16_t>& values) {
    memory.resize((values.size() * 2 + 15) / 16);
    std::memcpy(memory.data(), values.data(), values.size() * 2);
  }
  char* region(std::uint32_t group) {
    return reinterpret_cast<char*>(heap_.data()) + group * layout_.region_bytes();
  }

  void run_lane(int rank, std::uint32_t of, int lane) {
    Rank& own = ranks_[static_cast<std::size_t>(rank)];
    Group& group = own.groups[of];
    runtime::GemvCall call = problem_.call(rank);
    call.input = own.input.data();
    call.weight = own.weight.data();
    call.output = own.output.data();
    const Gemv gemv = runtime::gemv_of(call, shape_.ranks);
    const protocol::FlatRegion<HostSpace> view(region(of), stride_, rank, layout_);
    const protocol::Control<HostSpace> control{&own.abort, &own.claim, &own.valid, &own.record,
                                               60'000'000'000};
    exec::LaneCoop coop{lane, shape_.lanes, group.barrier.get()};
    protocol::Session session(view, coop, group.state, control, of, 0);
    const TileShare share{of, shape_.groups, gemv.tiles};
    const GemvOutput<HostSpace, Bf16> output(gemv);
    if (!problem_.gathers) {
      LaneProduct<Bf16> product({gemv.weight, gemv.input, gemv.tokens, gemv.in_vecs, gemv.tiles}, lane,
                                shape_.lanes);
      gemv_all_reduce<8>(session, share, gemv.tokens, product, output, NoDelay{});
      session.close();
      return;
    }
    if (lane == 0) group.tokens.resize(std::size_t{gemv.tokens} * gemv.in_vecs);
    coop.sync();
    gather_tokens<SentinelCell<Bf16>, 8>(
        session, gemv,
        [&](std::uint32_t token, std::uint32_t vec, const exec::Vec& value) {
          group.tokens[std::size_t{token} * gemv.in_vecs + vec] = value;
        },
        NoDelay{});
    session.close();
    coop.sync();
    LaneProduct<Bf16> product({gemv.weight, group.tokens.data(), gemv.tokens, gemv.in_vecs, gemv.tiles}, lane,
                              shape_.lanes);
    product.start(share.tile_if(product.team(), share.turns()));
    gemv_tiles(share, product, output);
  }

  Shape shape_;
  GemvProblem problem_;
  protocol::RegionLayout layout_;
  std::size_t stride_ = 0;
  std::vector<Cache> heap_;
  std::vector<Rank> ranks_;
};

GemvProblem problem_of(std::size_t tokens, std::size_t in, std::size_t out, bool gathers = false) {
  GemvProblem problem;
  problem.tokens = tokens;
  problem.in = in;
  problem.out = out;
  problem.gathers = gathers;
  return problem;
}

TEST(GemvLanes, InOneRound) {
  EXPECT_EQ(Lanes({2, 3, 1, 64}, problem_of(1, 24, 56)).run(5), "");
  EXPECT_EQ(Lanes({2, 2, 3, 64}, problem_of(5, 16, 72)).run(5), "");
  EXPECT_EQ(Lanes({3, 2, 2, 128}, problem_of(16, 8, 40)).run(5), "");
  // More threads than packets, and groups that have a tile less than others.
  EXPECT_EQ(Lanes({2, 4, 2, 32}, problem_of(1, 8, 24)).run(5), "");
}

// Rounds of as many tiles as there are teams, of fewer, and of no multiple of them.
TEST(GemvLanes, InRounds) {
  for (const std::uint32_t packets : {4u, 2u, 6u, 10u}) {
    EXPECT_EQ(Lanes({2, 2, 1, packets}, problem_of(1, 16, 88)).run(3), "");
    EXPECT_EQ(Lanes({3, 3, 1, packets}, problem_of(1, 8, 80)).run(3), "");
  }
  EXPECT_EQ(Lanes({2, 3, 2, 12}, problem_of(3, 16, 120)).run(3), "");
}

TEST(GemvLanes, OfGatheredTokens) {
  EXPECT_EQ(Lanes({2, 3, 2, 64}, problem_of(4, 40, 40, true)).run(5), "");
  EXPECT_EQ(Lanes({3, 2, 1, 7}, problem_of(5, 24, 24, true)).run(3), "");
}

// Every tile is exactly one group's, whatever there are.
TEST(GemvLanes, SharesCoverTheTiles) {
  for (std::uint32_t tiles = 1; tiles <= 70; ++tiles) {
    for (std::uint32_t count = 1; count <= tiles; ++count) {
      std::vector<int> seen(tiles);
      for (std::uint32_t index = 0; index < count; ++index) {
        const TileShare share{index, count, tiles};
        for (std::uint32_t turn = 0; turn < share.turns(); ++turn) ++seen[share.tile(turn)];
        EXPECT_EQ(share.tile_if(share.turns(), share.turns()), exec::kNoTile);
        EXPECT_GE(share.turns(), tiles / count);
        EXPECT_LE(share.turns(), tiles / count + 1);
      }
      for (const int times : seen) EXPECT_EQ(times, 1);
    }
  }
}

}  // namespace
}  // namespace nearlight::algorithm
