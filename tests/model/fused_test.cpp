// Fused rows: the sentinel's exchange, by teams of groups that meet in the middle of a round. Integers stand
// for what is summed up; a row's sum over its team is added to each of its elements.
#include <gtest/gtest.h>

#include <cstring>
#include <limits>

#include "algorithm/fused_rows.hpp"
#include "tests/model/exchange.hpp"
#include "tests/model/mutants.hpp"

namespace nearlight::model {
namespace {

using algorithm::FusedRows;
using algorithm::RowShare;
using exec::Vec;

constexpr int kPerVec = 4;

struct IntegerFinish {
  struct Squares {
    std::int32_t sum = 0;
    float all() const { return static_cast<float>(sum); }
  };
  struct Scales {
    float root, inverse;
  };
  FusedRows what;

  const FusedRows& rows() const { return what; }
  const char* input_place(std::uint32_t row, std::uint32_t at) const {
    return static_cast<const char*>(what.input) + (row * what.vecs + at) * sizeof(Vec);
  }
  Vec load_input(std::uint32_t row, std::uint32_t at) const {
    return exec::HostSpace::load_vec(input_place(row, at));
  }
  Vec load_added(std::uint32_t, std::uint32_t) const { return {}; }
  Vec load_weight(std::uint32_t) const { return {}; }
  float load_inverse_scale() const { return 1; }
  Vec load_sum(std::uint32_t row, std::uint32_t at) const {
    return exec::HostSpace::load_vec(static_cast<char*>(what.sum) + (row * what.vecs + at) * sizeof(Vec));
  }
  void store_sum(std::uint32_t row, std::uint32_t at, const Vec& sum) const {
    exec::HostSpace::store_vec(static_cast<char*>(what.sum) + (row * what.vecs + at) * sizeof(Vec), sum);
  }
  Vec add(const Vec& reduced, const Vec&, Squares& squares) const {
    squares.sum += static_cast<std::int32_t>(exec::low_half(reduced.pack[0]));
    return reduced;
  }
  float root_of(float sum) const { return sum; }
  void store_output(std::uint32_t row, std::uint32_t at, const Vec& sum, const Vec&,
                    const Scales& scales) const {
    std::int32_t values[kPerVec];
    std::memcpy(values, &sum, sizeof values);
    for (std::int32_t& value : values) value += static_cast<std::int32_t>(scales.root);
    std::memcpy(static_cast<char*>(what.output) + (row * what.vecs + at) * sizeof(Vec), values,
                sizeof values);
  }
};

// The groups of a rank, one lane each, as one team; two sets in turns, as on the GPU.
struct GroupTeam {
  exec::ModelBarrier* barrier;
  std::int32_t (*slots)[2];
  int group, groups, turn = 0;
  void begin() {}
  float sum(float mine) {
    std::int32_t* const set = slots[turn++ % 2];
    set[group] = static_cast<std::int32_t>(mine);
    barrier->arrive_and_wait(group, groups);
    std::int32_t all = 0;
    for (int other = 0; other < groups; ++other) all += set[other];
    return static_cast<float>(all);
  }
};
// Nobody waits for the other groups of the row.
struct LonelyTeam : GroupTeam {
  float sum(float mine) {
    std::int32_t* const set = slots[turn++ % 2];
    set[group] = static_cast<std::int32_t>(mine);
    return static_cast<float>(set[0] + (groups > 1 ? set[1] : 0));
  }
};

struct Base : Case<> {
  static void fence_between_sessions() { Space::fence_system(); }
  using Team = GroupTeam;
  static constexpr int kGroups = 1, kCalls = 3;
  static constexpr std::uint32_t kRows = 1, kVecs = 2, kAtOnce = 1;
  static constexpr int kHeldVecs = 2;  // 0: streamed
  static constexpr bool kOnce = false;
  static constexpr int kPackets = 2;
};

template <class C>
struct Fused : Scenario {
  static constexpr int kThreads = C::kRanks * C::kGroups;
  static constexpr unsigned kStepLimit = C::kStepLimit;
  static constexpr int kRanks = C::kRanks, kGroups = C::kGroups;
  static constexpr std::uint32_t kCount = C::kRows * C::kVecs * kPerVec;
  using Space = typename C::Space;
  using Memory = exec::ModelMemory<Space, kRanks, 1, 1, C::kPackets, 0>;
  using View = typename C::template View<Memory>;

  Memory memory[kGroups];
  protocol::RegionState<Space> state[kRanks][kGroups];
  exec::ModelBarrier group[kRanks][kGroups], team[kRanks], between_calls[kRanks];
  std::int32_t slots[kRanks][2][2];
  std::int32_t input[kRanks][C::kCalls][kCount], sum[kRanks][C::kCalls][kCount],
      output[kRanks][C::kCalls][kCount];

  static std::int32_t given(int rank, int call, std::uint32_t i) {
    return (rank + 1) * 1000 + (call + 1) * 100 + static_cast<std::int32_t>(i);
  }

  void before() override {
    exec::model_counters.restart();
    for (int rank = 0; rank < kRanks; ++rank) {
      slots[rank][0][0] = slots[rank][0][1] = slots[rank][1][0] = slots[rank][1][1] = 0;
      for (int of = 0; of < kGroups; ++of)
        Space::template store<exec::Order::relaxed, exec::Scope::device>(state[rank][of].epoch,
                                                                         C::kInitialEpoch);
      for (int call = 0; call < C::kCalls; ++call) {
        for (std::uint32_t i = 0; i < kCount; ++i) {
          input[rank][call][i] = given(rank, call, i);
          sum[rank][call][i] = output[rank][call][i] = -1;
        }
      }
    }
  }

  void thread(unsigned index) override {
    const int rank = static_cast<int>(index) / kGroups, of = static_cast<int>(index) % kGroups;
    for (int call = 0; call < C::kCalls; ++call) {
      run(rank, of, call);
      C::fence_between_sessions();
      between_calls[rank].arrive_and_wait(of, kGroups);
      C::fence_between_sessions();
      if (of == 0) check(rank, call);
    }
  }

 private:
  void run(int rank, int of, int call) {
    protocol::Control<Space> control;
    control.timeout_ns = std::numeric_limits<std::uint64_t>::max();
    const View view(memory[of], rank);
    protocol::Session session(view, exec::ModelCoop{0, 1, &group[rank][of]}, state[rank][of], control, 0, 0);
    IntegerFinish finish{};
    finish.what.input = input[rank][call];
    finish.what.sum = sum[rank][call];
    finish.what.output = output[rank][call];
    finish.what.normalises = true;
    finish.what.rows = C::kRows;
    finish.what.vecs = C::kVecs;
    finish.what.at_once = C::kAtOnce;
    finish.what.spread = kGroups;
    const RowShare share{0, 1, static_cast<std::uint32_t>(of), kGroups};
    typename C::Team own;
    static_cast<GroupTeam&>(own) = {&team[rank], slots[rank], of, kGroups};
    using Math = algorithm::PackMath<Space, std::int32_t, ReduceOp::sum>;
    if constexpr (C::kHeldVecs == 0) {
      algorithm::streamed_rows<Math, NothingToRewrite, kRanks>(session, own, share, finish,
                                                               algorithm::NoDelay{});
    } else {
      const algorithm::HeldRows<Math, NothingToRewrite, kRanks, C::kHeldVecs, C::kOnce, View, IntegerFinish>
          work(view, 0, 1, share, finish);
      work.run(session, own, algorithm::NoDelay{});
    }
    session.close();
  }

  void check(int rank, int call) {
    for (std::uint32_t row = 0; row < C::kRows; ++row) {
      std::int32_t root = 0;
      for (std::uint32_t vec = 0; vec < C::kVecs; ++vec)
        root += total(call, (row * C::kVecs + vec) * kPerVec);
      for (std::uint32_t i = row * C::kVecs * kPerVec; i < (row + 1) * C::kVecs * kPerVec; ++i) {
        RL_ASSERT(sum[rank][call][i] == total(call, i));
        RL_ASSERT(output[rank][call][i] == total(call, i) + root);
      }
    }
  }
  static std::int32_t total(int call, std::uint32_t i) {
    std::int32_t all = 0;
    for (int source = 0; source < kRanks; ++source) all += given(source, call, i);
    return all;
  }
};

struct Once : Base {
  static constexpr bool kOnce = true;
};
struct OneCall : Once {
  static constexpr int kCalls = 1, kHeldVecs = 1;
  static constexpr std::uint32_t kVecs = 1;
};
struct OnceThreeRanks : Once {
  static constexpr int kRanks = 3;
};
struct Rounds : Base {
  static constexpr std::uint32_t kRows = 4;
  static constexpr int kCalls = 2;
};
struct RoundsOfTwoRows : Base {
  static constexpr std::uint32_t kRows = 5, kVecs = 1, kAtOnce = 2;
  static constexpr int kCalls = 2, kHeldVecs = 1;
};
struct Streamed : Base {
  static constexpr int kHeldVecs = 0, kPackets = 1, kCalls = 2;
  static constexpr std::uint32_t kRows = 2;
};
// A row of two groups, each with a region and an epoch of its own.
struct Groups : Once {
  static constexpr int kGroups = 2, kHeldVecs = 1;
};
struct GroupsRounds : Rounds {
  static constexpr int kGroups = 2, kHeldVecs = 1;
  static constexpr std::uint32_t kRows = 3;
};
struct GroupsStreamed : Streamed {
  static constexpr int kGroups = 2;
};

TEST(Fused, OneCallEveryInterleavingOfFewSwitches) {
  expect_holds<Fused<OneCall>>(Search::bounded(slow_tier() ? 6u : 4u));
}
TEST(Fused, Once) { expect_holds_at_random<Fused<Once>>(10'000, 100'000); }
TEST(Fused, OnceThreeRanks) { expect_holds_at_random<Fused<OnceThreeRanks>>(5'000, 50'000); }
TEST(Fused, Rounds) { expect_holds_at_random<Fused<Rounds>>(10'000, 100'000); }
TEST(Fused, RoundsOfTwoRows) { expect_holds_at_random<Fused<RoundsOfTwoRows>>(10'000, 100'000); }
TEST(Fused, Streamed) { expect_holds_at_random<Fused<Streamed>>(10'000, 100'000); }
TEST(Fused, Groups) { expect_holds_at_random<Fused<Groups>>(10'000, 100'000); }
TEST(Fused, GroupsRounds) { expect_holds_at_random<Fused<GroupsRounds>>(5'000, 50'000); }
TEST(Fused, GroupsStreamed) { expect_holds_at_random<Fused<GroupsStreamed>>(5'000, 50'000); }

template <class B, class S>
struct In : B {
  using Space = S;
  template <class Memory>
  using View = exec::ModelRegion<S, Memory>;
};
struct InOneBank : Once {
  template <class Memory>
  using View = OnePacketBank<Memory>;
};
struct Lonely : Groups {
  using Team = LonelyTeam;
};
// The rows of a round in one place: the second takes the first's packet, and nobody gets both.
struct Crowded : RoundsOfTwoRows {
  template <class Memory>
  struct View : exec::ModelRegion<Space, Memory> {
    using exec::ModelRegion<Space, Memory>::ModelRegion;
    auto& packet(int peer, int bank, int source, std::uint32_t) const {
      return exec::ModelRegion<Space, Memory>::packet(peer, bank, source, 0);
    }
  };
};

TEST(FusedMutant, NoResetIsFound) {
  expect_found<Fused<In<Once, NeverReset>>>(rl::test_result_user_assert_failed, 10'000);
}
TEST(FusedMutant, HalfAPacketIsFound) {
  expect_found<Fused<In<Once, OneHalfAPacket>>>(rl::test_result_user_assert_failed, 10'000);
}
TEST(FusedMutant, OneBankIsFound) { expect_found<Fused<InOneBank>>(rl::test_result_data_race, 10'000); }
TEST(FusedMutant, NoFenceBetweenRoundsIsFound) {
  expect_found<Fused<In<Rounds, NoFence<0xffffffffu>>>>(rl::test_result_data_race, 10'000);
}
TEST(FusedMutant, ATeamThatDoesNotMeetIsFound) {
  expect_found<Fused<Lonely>>(rl::test_result_user_assert_failed, 10'000);
}
TEST(FusedMutant, RowsOfARoundInOnePlaceAreFound) {
  expect_found<Fused<Crowded>>(rl::test_result_livelock, 10'000);
}

}  // namespace
}  // namespace nearlight::model
