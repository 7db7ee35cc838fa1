// A product's tiles: sent one by one by whoever works them out, reduced by whoever has the packet's place,
// the own part among them. Integers stand for what is summed up.
#include <gtest/gtest.h>

#include <cstring>
#include <limits>

#include "algorithm/gather_tokens.hpp"
#include "algorithm/gemv.hpp"
#include "tests/model/exchange.hpp"
#include "tests/model/mutants.hpp"

namespace nearlight::model {
namespace {

using algorithm::TileShare;
using exec::Vec;

constexpr std::uint32_t kPerPacket = 4, kPerTile = exec::kTilePackets * kPerPacket;

std::int32_t given(int rank, int call, std::uint32_t i) {
  return (rank + 1) * 1000 + (call + 1) * 100 + static_cast<std::int32_t>(i);
}

// Every lane is a team. Of two lanes one also reduces what the other has worked out.
struct IntegerProduct {
  int rank, call;
  std::uint32_t lane, lanes;
  std::uint32_t team() const { return lane; }
  std::uint32_t teams() const { return lanes; }
  void start(std::uint32_t) {}
  void take_tokens() {}
  template <class Emit>
  void work_out(std::uint32_t tile, std::uint32_t, Emit&& emit) {
    for (std::uint32_t packet = 0; packet < exec::kTilePackets; ++packet) {
      Vec vec;
      std::int32_t values[kPerPacket];
      for (std::uint32_t i = 0; i < kPerPacket; ++i)
        values[i] = given(rank, call, tile * kPerTile + packet * kPerPacket + i);
      std::memcpy(&vec, values, sizeof vec);
      emit(packet, vec);
    }
  }
};

struct IntegerOutput {
  using Rewrite = NothingToRewrite;
  std::int32_t* output;
  template <int kMax>
  void store(std::uint32_t tile, std::uint32_t packet, const Vec (&parts)[kMax], int nranks) const {
    std::int32_t sum[kPerPacket] = {};
    for (int source = 0; source < nranks; ++source) {
      std::int32_t values[kPerPacket];
      std::memcpy(values, &parts[source], sizeof values);
      for (std::uint32_t i = 0; i < kPerPacket; ++i) sum[i] += values[i];
    }
    std::memcpy(output + tile * kPerTile + packet * kPerPacket, sum, sizeof sum);
  }
};

struct Base : Case<> {
  static void fence_between_sessions() { Space::fence_system(); }
  static constexpr int kLanes = 2, kCalls = 3;
  static constexpr std::uint32_t kTiles = 1;
  static constexpr int kPackets = exec::kTilePackets;  // a tile a round
};

// Calls of the lanes of some ranks, each in a session of its own. Own: prepare(rank, call), before all;
// make(session, rank, lane, call), each lane's part; check(rank, call), when all lanes are through.
template <class C, class Own>
struct Calls : Scenario {
  static constexpr int kThreads = C::kRanks * C::kLanes;
  static constexpr unsigned kStepLimit = C::kStepLimit;
  static constexpr int kRanks = C::kRanks, kLanes = C::kLanes;
  using Space = typename C::Space;
  using Memory = exec::ModelMemory<Space, kRanks, 1, 1, C::kPackets, 0>;
  using View = typename C::template View<Memory>;
  using Coop = typename C::Coop;

  Memory memory;
  protocol::RegionState<Space> state[kRanks];
  exec::ModelBarrier group[kRanks], between_calls[kRanks];

  void before() override {
    exec::model_counters.restart();
    if constexpr (requires { Space::memory; }) Space::memory = &memory.packet[0][0][0][0];
    for (int rank = 0; rank < kRanks; ++rank) {
      Space::template store<exec::Order::relaxed, exec::Scope::device>(state[rank].epoch, C::kInitialEpoch);
      for (int call = 0; call < C::kCalls; ++call) own().prepare(rank, call);
    }
  }

  void thread(unsigned index) override {
    const int rank = static_cast<int>(index) / kLanes, lane = static_cast<int>(index) % kLanes;
    for (int call = 0; call < C::kCalls; ++call) {
      run(rank, lane, call);
      C::fence_between_sessions();
      between_calls[rank].arrive_and_wait(lane, kLanes);
      C::fence_between_sessions();
      if (lane == 0) own().check(rank, call);
    }
  }

 private:
  Own& own() { return static_cast<Own&>(*this); }
  void run(int rank, int lane, int call) {
    protocol::Control<Space> control;
    control.timeout_ns = std::numeric_limits<std::uint64_t>::max();
    Coop coop{};
    static_cast<exec::ModelCoop&>(coop) = {lane, kLanes, &group[rank]};
    protocol::Session session(View(memory, rank), coop, state[rank], control, 0, 0);
    own().make(session, rank, lane, call);
    session.close();
  }
};

template <class C>
struct Gemv : Calls<C, Gemv<C>> {
  static constexpr std::uint32_t kCount = C::kTiles * kPerTile;
  std::int32_t output[C::kRanks][C::kCalls][kCount];

  void prepare(int rank, int call) {
    for (std::int32_t& value : output[rank][call]) value = -1;
  }
  template <class SessionT>
  void make(SessionT& session, int rank, int lane, int call) {
    IntegerProduct product{rank, call, static_cast<std::uint32_t>(lane), C::kLanes};
    algorithm::gemv_all_reduce<C::kRanks>(session, TileShare{0, 1, C::kTiles}, 1, product,
                                          IntegerOutput{output[rank][call]}, algorithm::NoDelay{});
  }
  void check(int rank, int call) {
    for (std::uint32_t i = 0; i < kCount; ++i) {
      std::int32_t all = 0;
      for (int source = 0; source < C::kRanks; ++source) all += given(source, call, i);
      RL_ASSERT(output[rank][call][i] == all);
    }
  }
};

struct OneLane : Base {
  static constexpr int kLanes = 1;
};
struct OneCall : OneLane {
  static constexpr int kCalls = 1;
};
struct TwoTiles : Base {
  static constexpr std::uint32_t kTiles = 2;
  static constexpr int kPackets = 2 * exec::kTilePackets, kCalls = 2;
};
struct Rounds : Base {
  static constexpr std::uint32_t kTiles = 4;
  static constexpr int kCalls = 2;
};
struct ThreeRanks : OneLane {
  static constexpr int kRanks = 3;
  static constexpr std::uint32_t kTiles = 2;
};

TEST(Gemv, OneCallEveryInterleavingOfFewSwitches) {
  expect_holds<Gemv<OneCall>>(Search::bounded(slow_tier() ? 3u : 2u));
}
TEST(Gemv, OneTile) { expect_holds_at_random<Gemv<Base>>(10'000, 100'000); }
TEST(Gemv, TwoTilesOfARound) { expect_holds_at_random<Gemv<TwoTiles>>(5'000, 50'000); }
TEST(Gemv, Rounds) { expect_holds_at_random<Gemv<Rounds>>(5'000, 50'000); }
TEST(Gemv, ThreeRanks) { expect_holds_at_random<Gemv<ThreeRanks>>(5'000, 50'000); }

// The tokens' parts of all ranks, put together by the lanes of a group.
template <class C>
struct Gathered : Calls<C, Gathered<C>> {
  static constexpr std::uint32_t kPart = C::kTiles, kTokens = 2, kVecs = kPart * C::kRanks;
  std::int32_t input[C::kRanks][C::kCalls][kTokens * kPart * kPerPacket];
  std::int32_t tokens[C::kRanks][C::kCalls][kTokens * kVecs * kPerPacket];

  void prepare(int rank, int call) {
    for (std::uint32_t i = 0; i < kTokens * kPart * kPerPacket; ++i)
      input[rank][call][i] = given(rank, call, i);
    for (std::int32_t& value : tokens[rank][call]) value = -1;
  }
  template <class SessionT>
  void make(SessionT& session, int rank, int, int call) {
    algorithm::Gemv gemv{};
    gemv.input = input[rank][call];
    gemv.tokens = kTokens;
    gemv.in_vecs = kVecs;
    algorithm::gather_tokens<NothingToRewrite, C::kRanks>(
        session, gemv,
        [&](std::uint32_t token, std::uint32_t vec, const Vec& value) {
          std::memcpy(tokens[rank][call] + (token * kVecs + vec) * kPerPacket, &value, sizeof value);
        },
        algorithm::NoDelay{});
  }
  void check(int rank, int call) {
    for (std::uint32_t i = 0; i < kTokens * kVecs * kPerPacket; ++i) {
      const std::uint32_t token = i / (kVecs * kPerPacket), at = i % (kVecs * kPerPacket);
      const int source = static_cast<int>(at / (kPart * kPerPacket));
      RL_ASSERT(tokens[rank][call][i] ==
                given(source, call, token * kPart * kPerPacket + at % (kPart * kPerPacket)));
    }
  }
};

TEST(GatherTokens, OneRound) { expect_holds_at_random<Gathered<Base>>(10'000, 100'000); }
TEST(GatherTokens, Rounds) { expect_holds_at_random<Gathered<Rounds>>(5'000, 50'000); }
TEST(GatherTokens, ThreeRanks) { expect_holds_at_random<Gathered<ThreeRanks>>(5'000, 50'000); }

template <class B, class S>
struct In : B {
  using Space = S;
  template <class Memory>
  using View = exec::ModelRegion<S, Memory>;
};
struct InOneBank : Base {
  template <class Memory>
  using View = OnePacketBank<Memory>;
};
struct Unsynced : Rounds {
  using Coop = NoSync;
};
// The tiles of a round in one place.
struct Crowded : TwoTiles {
  template <class Memory>
  struct View : exec::ModelRegion<Space, Memory> {
    using exec::ModelRegion<Space, Memory>::ModelRegion;
    auto& packet(int peer, int bank, int source, std::uint32_t index) const {
      return exec::ModelRegion<Space, Memory>::packet(peer, bank, source, index % exec::kTilePackets);
    }
  };
};
// Nobody waits for the own part: it is taken for there.
struct OwnPartAsItIs : ModelSpace {
  static inline const Packet* memory = nullptr;
  static Vec load_packet(const Packet& packet) {
    const Vec vec = ModelSpace::load_packet(packet);
    const auto at = &packet - memory;  // [owner][bank][source][packet], two of each
    const bool own = at / 8 == at / 2 % 2;
    return own && ~vec.pack[0] == 0 ? Vec{{0, 0}} : vec;
  }
};

TEST(GemvMutant, NoResetIsFound) {
  expect_found<Gemv<In<Base, NeverReset>>>(rl::test_result_user_assert_failed, 10'000);
}
TEST(GemvMutant, HalfAPacketIsFound) {
  expect_found<Gemv<In<Base, OneHalfAPacket>>>(rl::test_result_user_assert_failed, 10'000);
}
TEST(GemvMutant, OneBankIsFound) { expect_found<Gemv<InOneBank>>(rl::test_result_data_race, 10'000); }
TEST(GemvMutant, NoFenceBetweenRoundsIsFound) {
  expect_found<Gemv<In<Rounds, NoFence<0xffffffffu>>>>(rl::test_result_data_race, 10'000);
}
TEST(GemvMutant, LanesThatDoNotMeetAreFound) {
  expect_found<Gemv<Unsynced>>(rl::test_result_data_race, 10'000);
}
TEST(GemvMutant, TilesOfARoundInOnePlaceAreFound) {
  expect_found<Gemv<Crowded>>(rl::test_result_livelock, 10'000);
}
TEST(GemvMutant, AnOwnPartThatIsNotWaitedForIsFound) {
  expect_found<Gemv<In<Base, OwnPartAsItIs>>>(rl::test_result_user_assert_failed, 10'000);
}

TEST(GatherTokensMutant, NoResetIsFound) {
  expect_found<Gathered<In<Base, NeverReset>>>(rl::test_result_user_assert_failed, 10'000);
}
TEST(GatherTokensMutant, OneBankIsFound) {
  expect_found<Gathered<InOneBank>>(rl::test_result_data_race, 10'000);
}
TEST(GatherTokensMutant, NoFenceBetweenRoundsIsFound) {
  expect_found<Gathered<In<Rounds, NoFence<0xffffffffu>>>>(rl::test_result_data_race, 10'000);
}

}  // namespace
}  // namespace nearlight::model
