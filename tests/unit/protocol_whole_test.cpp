// The sentinel's one-shot for whole runs of threads, whose threads leave for good when they fail: on CPU
// threads in a space in which to leave is to throw.
#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include <nearlight/detail/exec/host_space.hpp>
#include <nearlight/detail/exec/lane_coop.hpp>
#include "algorithm/kinds.hpp"
#include "algorithm/one_shot.hpp"
#include "algorithm/one_shot_sentinel.hpp"
#include "algorithm/sentinel_cell.hpp"
#include "tests/support/counts_arrivals.hpp"

namespace nearlight::test {
namespace {

struct Left {};

struct LeavingSpace : exec::HostSpace {
  [[noreturn]] static void leave() { throw Left{}; }
};
static_assert(exec::ExecSpace<LeavingSpace>);

using Region = protocol::FlatRegion<LeavingSpace>;
using Session = protocol::Session<Region, exec::LaneCoop>;

constexpr std::uint64_t kPerVec = 4;  // floats

class Whole : public testing::Test {
 protected:
  struct Rank {
    protocol::RegionState<LeavingSpace> state{};
    std::uint32_t abort = 0, claim = 0, valid = 0;
    protocol::FaultRecord record{};
    std::unique_ptr<std::barrier<>> inside;
    std::atomic<int> left{0}, arrivals{0};
  };
  struct alignas(128) Line {
    std::byte bytes[128];
  };

  void make(int ranks, int lanes, std::uint32_t packets, std::uint64_t timeout_ns = 60'000'000'000) {
    lanes_ = lanes;
    timeout_ns_ = timeout_ns;
    layout_ = {ranks, 8, 4, packets, 4};
    stride_ = layout_.region_bytes() + sizeof(Line);
    heap_ = std::vector<Line>((stride_ + sizeof(Line)) / sizeof(Line) * static_cast<std::size_t>(ranks));
    ranks_.clear();
    for (int rank = 0; rank < ranks; ++rank) {
      ranks_.push_back(std::make_unique<Rank>());
      ranks_.back()->inside = std::make_unique<std::barrier<>>(lanes);
      std::memset(base() + static_cast<std::size_t>(rank) * stride_ + layout_.packets_at(), 0xff,
                  layout_.packets_bytes());
    }
  }
  char* base() { return reinterpret_cast<char*>(heap_.data()); }
  Rank& rank(int rank) { return *ranks_[static_cast<std::size_t>(rank)]; }
  Region region(int rank) { return {base(), stride_, rank, layout_}; }

  // One lane's part in one call of `vecs` vectors; false when it has left.
  template <int kAtOnce>
  bool run(int rank_number, int lane, std::uint32_t held, float* send, float* recv, std::uint64_t vecs) {
    using Math = algorithm::PackMath<LeavingSpace, float, ReduceOp::sum>;
    using Bufs = algorithm::Buffer<LeavingSpace, float>;
    Rank& own = rank(rank_number);
    protocol::Control<LeavingSpace> control;
    control.abort = &own.abort;
    control.claim = &own.claim;
    control.valid = &own.valid;
    control.record = &own.record;
    control.timeout_ns = timeout_ns_;
    Session session(region(rank_number), {lane, lanes_, own.inside.get()}, own.state, control, 0, 0);
    try {
      algorithm::one_shot_sentinel_whole<Math, algorithm::SentinelCell<float>, protocol::kMaxRanks, kAtOnce>(
          session, {0, 1}, held, Bufs(send, vecs * kPerVec), Bufs(recv, vecs * kPerVec),
          CountsArrivals{&own.arrivals});
    } catch (const Left&) {
      own.inside->arrive_and_drop();
      ++own.left;
      return false;
    }
    session.close();
    return true;
  }

  static float given(int rank, std::uint64_t call, std::uint64_t i) {
    return static_cast<float>(1000 * rank + static_cast<int>(call) * 100 + static_cast<int>(i % 97));
  }

  // All ranks make calls of these numbers of vectors, one after the other, each at its own pace.
  template <int kAtOnce>
  void expect_right(const std::vector<std::uint64_t>& calls, std::uint32_t held) {
    std::vector<std::thread> threads;
    std::atomic<int> wrong{0};
    const int nranks = layout_.nranks;
    struct Group {
      explicit Group(int lanes) : between(lanes) {}
      std::barrier<> between;
      std::vector<float> send, recv;
    };
    std::vector<std::unique_ptr<Group>> groups;
    for (int r = 0; r < nranks; ++r) groups.push_back(std::make_unique<Group>(lanes_));
    const auto lane_main = [&](int r, int lane) {
      Group& group = *groups[static_cast<std::size_t>(r)];
      for (std::uint64_t call = 0; call < calls.size(); ++call) {
        const std::uint64_t count = calls[call] * kPerVec;
        if (lane == 0) {
          group.send.resize(count);
          group.recv.assign(count + kPerVec, -1.0f);
          for (std::uint64_t i = 0; i < count; ++i) group.send[i] = given(r, call, i);
        }
        group.between.arrive_and_wait();
        if (!run<kAtOnce>(r, lane, held, group.send.data(), group.recv.data(), calls[call])) ++wrong;
        group.between.arrive_and_wait();
        if (lane != 0) continue;
        for (std::uint64_t i = 0; i < count + kPerVec; ++i) {
          float sum = 0;
          for (int source = 0; source < nranks; ++source) sum += given(source, call, i);
          if (group.recv[i] != (i < count ? sum : -1.0f)) ++wrong;
        }
      }
    };
    for (int r = 0; r < nranks; ++r) {
      for (int lane = 0; lane < lanes_; ++lane) threads.emplace_back(lane_main, r, lane);
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(wrong, 0) << nranks << " ranks, " << lanes_ << " lanes, " << kAtOnce << " at once, held "
                        << held;
  }

  int lanes_ = 1;
  std::uint64_t timeout_ns_ = 0;
  protocol::RegionLayout layout_;
  std::size_t stride_ = 0;
  std::vector<Line> heap_;
  std::vector<std::unique_ptr<Rank>> ranks_;
};

// Rounds that are full, that end inside a lot, and that some lanes have nothing of.
TEST_F(Whole, SumsMessagesOfAnySizeInRounds) {
  const std::vector<std::uint64_t> calls = {1, 2, 3, 4, 7, 8, 9, 31, 32, 33, 64, 5};
  for (const int ranks : {2, 3, 8}) {
    for (const int lanes : {1, 2, 3}) {
      for (const std::uint32_t packets : {std::uint32_t{4}, std::uint32_t{32}}) {
        make(ranks, lanes, packets);
        expect_right<1>(calls, 1);
        make(ranks, lanes, packets);
        expect_right<2>(calls, 2);
        make(ranks, lanes, packets);
        expect_right<4>(calls, 4);
      }
    }
  }
}

// Nobody comes: every thread leaves, one tells who is missing, nothing is written, and in the next call they
// leave at once.
TEST_F(Whole, EveryThreadLeavesWhereNobodyComes) {
  make(2, 3, 32, 50'000'000);
  std::vector<float> send(6 * kPerVec, 1.0f), recv(6 * kPerVec, -1.0f);
  for (int call = 1; call <= 2; ++call) {
    std::vector<std::thread> threads;
    for (int lane = 0; lane < 3; ++lane)
      threads.emplace_back([&, lane] { EXPECT_FALSE(run<2>(0, lane, 2, send.data(), recv.data(), 6)); });
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(rank(0).left, 3 * call);
    rank(0).inside = std::make_unique<std::barrier<>>(3);
    timeout_ns_ = 60'000'000'000;  // the second time nobody waits
  }
  EXPECT_EQ(rank(0).valid, 1u);
  EXPECT_EQ(rank(0).record.kind, static_cast<std::uint32_t>(protocol::Wait::timeout));
  EXPECT_EQ(rank(0).record.peer, 1);
  EXPECT_EQ(rank(0).record.epoch, 1u);
  EXPECT_EQ(rank(0).state.failed, 1u);
  EXPECT_EQ(rank(0).arrivals, 0);
  for (const float value : recv) EXPECT_EQ(value, -1.0f);
}

// A thread without packets does not leave, and nothing has arrived for it.
TEST_F(Whole, NothingArrivesForAThreadWithoutPackets) {
  make(2, 3, 32, 50'000'000);
  std::vector<float> send(2 * kPerVec, 1.0f), recv(2 * kPerVec, -1.0f);
  std::vector<std::thread> threads;
  for (int lane = 0; lane < 3; ++lane) {
    threads.emplace_back(
        [&, lane] { EXPECT_EQ((run<1>(0, lane, 1, send.data(), recv.data(), 2)), lane == 2); });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(rank(0).arrivals, 0);
}

// One thread misses its part and leaves in the first of two rounds: the other one, whose parts are there, has
// its results and is not held up where the group meets.
TEST_F(Whole, AThreadThatLeavesHoldsUpNobody) {
  make(2, 2, 2, 50'000'000);
  using Vec = exec::Vec;
  const Vec arrived{
      {exec::join_halves(std::bit_cast<std::uint32_t>(5.0f), std::bit_cast<std::uint32_t>(6.0f)),
       exec::join_halves(std::bit_cast<std::uint32_t>(7.0f), std::bit_cast<std::uint32_t>(8.0f))}};
  const Region mine = region(0);
  for (const std::uint32_t epoch : {1u, 2u})
    LeavingSpace::store_packet(mine.packet(0, protocol::bank_of(epoch), 1, 0), arrived);
  std::vector<float> send(4 * kPerVec, 1.0f), recv(4 * kPerVec, -1.0f);
  bool done[2] = {};
  std::thread other([&] { done[1] = run<1>(0, 1, 1, send.data(), recv.data(), 4); });
  done[0] = run<1>(0, 0, 1, send.data(), recv.data(), 4);
  other.join();
  EXPECT_TRUE(done[0]);
  EXPECT_FALSE(done[1]);
  EXPECT_EQ(rank(0).arrivals, 2);  // one in each round
  EXPECT_EQ(recv, (std::vector<float>{6, 7, 8, 9, -1, -1, -1, -1, 6, 7, 8, 9, -1, -1, -1, -1}));
  EXPECT_EQ(rank(0).record.slot, 1u);
  EXPECT_EQ(rank(0).record.peer, 1);
  EXPECT_EQ(rank(0).record.epoch, 1u);
  EXPECT_EQ(rank(0).state.epoch, 2u);
  EXPECT_EQ(rank(0).state.failed, 1u);
}

}  // namespace
}  // namespace nearlight::test
