// The channels of people's own kernels: more epochs than banks, sessions that end in an epoch that nobody
// used, neighbours only, answered one-way messages, put and signal; and what happens to who breaks the rule.
#include <gtest/gtest.h>

#include <limits>

#include <nearlight/detail/protocol/channel.hpp>
#include "tests/model/checker.hpp"
#include "tests/model/mutants.hpp"

namespace nearlight::model {
namespace {

using protocol::LlCarrier;
using protocol::MessageChannel;
using protocol::PutChannel;
using protocol::SentinelCarrier;

// What a rank does in every epoch.
enum class Pattern { all_to_all, one_way, one_way_unanswered, neighbours };

template <std::uint32_t last_epoch = 0xffffffffu>
struct ChannelCase {
  using Space = exec::ModelSpaceWith<last_epoch>;
  using Coop = exec::ModelCoop;
  using Carrier = LlCarrier;
  template <class Memory>
  using View = exec::ModelRegion<Space, Memory>;
  static constexpr Pattern kPattern = Pattern::all_to_all;
  static constexpr int kRanks = 2, kLanes = 1, kEpochs = 4;
  static constexpr int kEpochsOfASession = kEpochs;
  static constexpr bool kAdvanceBeforeClose = true;  // so that the last epoch of a session is not used
  static constexpr bool kChecks = false;
  static constexpr bool kOneLaneReceives = false;  // for all of them
  static constexpr std::uint32_t kInitialEpoch = last_epoch == 0xffffffffu ? 100 : 0;
  // What the boundary of two kernels is.
  static constexpr bool kFenceBetweenSessions = true;
};

template <class C>
struct Channels : Scenario {
  static constexpr int kRanks = C::kRanks, kLanes = C::kLanes;
  static constexpr int kThreads = kRanks * kLanes;
  static constexpr unsigned kStepLimit = 20'000;
  using Space = typename C::Space;
  using Memory = exec::ModelMemory<Space, kRanks, kLanes, 0, kLanes>;
  using View = typename C::template View<Memory>;
  using Channel = MessageChannel<View, typename C::Carrier, typename C::Coop, C::kChecks>;

  Memory memory;
  protocol::RegionState<Space> state[kRanks];
  typename Space::Word abort[kRanks], claim[kRanks], valid[kRanks];
  typename Space::Word heard[kRanks][kRanks], writers[kRanks][kRanks * kLanes];
  protocol::FaultRecord record[kRanks] = {};
  exec::ModelBarrier group[kRanks], between_sessions[kRanks];

  void before() override {
    exec::model_counters.restart();
    for (auto& one : state)
      Space::template store<exec::Order::relaxed, exec::Scope::device>(one.epoch, C::kInitialEpoch);
  }

  void thread(unsigned index) override {
    const int rank = static_cast<int>(index) / kLanes, lane = static_cast<int>(index) % kLanes;
    for (int epoch = 0; epoch < C::kEpochs;) {
      epoch = session(rank, lane, epoch);
      if (C::kFenceBetweenSessions) Space::fence_system();
      exec::ModelCoop{lane, kLanes, &between_sessions[rank]}.sync();
      if (C::kFenceBetweenSessions) Space::fence_system();
    }
  }

  static std::uint32_t peers_of(int rank) {
    std::uint32_t peers = 0;
    for (int peer = 0; peer < kRanks; ++peer) {
      const bool near = peer == rank - 1 || peer == rank + 1;
      if (peer != rank && (C::kPattern != Pattern::neighbours || near)) peers |= 1u << peer;
    }
    return peers;
  }
  static std::uint32_t given(int rank, int epoch, std::uint32_t slot) {
    return static_cast<std::uint32_t>((rank + 1) * 1000 + epoch * 10) + slot;
  }

  int session(int rank, int lane, int epoch) {
    protocol::Control<Space> control;
    control.abort = &abort[rank];
    control.claim = &claim[rank];
    control.valid = &valid[rank];
    control.record = &record[rank];
    control.timeout_ns = std::numeric_limits<std::uint64_t>::max();
    protocol::ChannelNotes<Space> notes;
    if (C::kChecks) notes = {heard[rank], writers[rank], static_cast<std::uint32_t>(kLanes)};
    Channel ch(View(memory, rank), {lane, kLanes, &group[rank]}, state[rank], control, peers_of(rank), notes,
               0, 0);
    for (int i = 0; i < C::kEpochsOfASession && epoch < C::kEpochs; ++i, ++epoch) {
      if (i > 0) ch.advance_epoch();
      exchange(ch, static_cast<std::uint32_t>(lane), epoch);
    }
    if (C::kAdvanceBeforeClose) ch.advance_epoch();
    return epoch;
  }

  void exchange(Channel& ch, std::uint32_t slot, int epoch) {
    const bool one_way = C::kPattern == Pattern::one_way || C::kPattern == Pattern::one_way_unanswered;
    // The answer says that the epoch before has been read: it may go first.
    if (!one_way || ch.rank() == 0 || C::kPattern == Pattern::one_way)
      ch.bcast(slot, given(ch.rank(), epoch, slot));
    if (C::kPattern == Pattern::one_way_unanswered && ch.rank() == 0) return;
    if (C::kOneLaneReceives && slot != 0) return;
    const std::uint32_t last = C::kOneLaneReceives ? kLanes - 1 : slot;
    for (int source = 0; source < kRanks; ++source) {
      if (!ch.is_peer(source)) continue;
      for (std::uint32_t from = slot; from <= last; ++from) {
        std::uint32_t got = 0;
        if (ch.recv(source, from, got)) RL_ASSERT(got == given(source, epoch, from));
        if (!C::kChecks) RL_ASSERT(!ch.failed());
      }
    }
  }
};

struct TwoRanks : ChannelCase<> {};
struct Sessions : ChannelCase<> {
  static constexpr int kEpochs = 5, kEpochsOfASession = 2;
};
struct Lanes : ChannelCase<> {
  static constexpr int kLanes = 2, kEpochs = 3;
};
struct LanesSessions : Lanes {
  static constexpr int kEpochs = 4, kEpochsOfASession = 1;
};
struct OneLaneReceives : Lanes {
  static constexpr bool kOneLaneReceives = true;
  static constexpr int kEpochs = 4;
};
struct ThreeRanks : ChannelCase<> {
  static constexpr int kRanks = 3, kEpochs = 3;
};
struct Neighbours : ThreeRanks {
  static constexpr Pattern kPattern = Pattern::neighbours;
  static constexpr int kEpochs = 4;
};
struct OneWay : ChannelCase<> {
  static constexpr Pattern kPattern = Pattern::one_way;
  static constexpr int kEpochs = 5;
};
template <class Base>
struct BySentinel : Base {
  using Carrier = SentinelCarrier;
};
template <class Base>
struct Checked : Base {
  static constexpr bool kChecks = true;
};
struct Wrap : ChannelCase<5> {
  static constexpr int kEpochs = 9, kEpochsOfASession = 4;
};

TEST(Channel, TwoRanksEveryInterleavingOfFewSwitches) {
  expect_holds<Channels<TwoRanks>>(Search::bounded(slow_tier() ? 3u : 2u));
}
TEST(Channel, TwoRanksBySentinelEveryInterleavingOfFewSwitches) {
  expect_holds<Channels<BySentinel<TwoRanks>>>(Search::bounded(slow_tier() ? 3u : 2u));
}
TEST(Channel, Sessions) {
  expect_holds_at_random<Channels<Sessions>>(10'000, 100'000);
  expect_holds_at_random<Channels<BySentinel<Sessions>>>(10'000, 100'000);
}
TEST(Channel, Lanes) {
  expect_holds_at_random<Channels<Lanes>>(5'000, 50'000);
  expect_holds_at_random<Channels<BySentinel<Lanes>>>(5'000, 50'000);
  expect_holds_at_random<Channels<LanesSessions>>(5'000, 50'000);
  expect_holds_at_random<Channels<OneLaneReceives>>(5'000, 50'000);
}
TEST(Channel, ThreeRanks) { expect_holds_at_random<Channels<ThreeRanks>>(5'000, 50'000); }
TEST(Channel, NeighboursHearOnlyEachOther) {
  expect_holds_at_random<Channels<Neighbours>>(10'000, 100'000);
  expect_holds_at_random<Channels<BySentinel<Neighbours>>>(10'000, 100'000);
}
TEST(Channel, OneWayWithAnAnswer) { expect_holds_at_random<Channels<OneWay>>(10'000, 100'000); }
TEST(Channel, AcrossTheWrap) {
  expect_holds_at_random<Channels<Wrap>>(5'000, 50'000);
  expect_holds_at_random<Channels<BySentinel<Wrap>>>(5'000, 50'000);
}
TEST(Channel, WithChecksNothingIsFoundWhereNothingIsWrong) {
  struct Expect : Channels<Checked<LanesSessions>> {
    void after() override {
      for (const auto& one : this->record) RL_ASSERT(one.kind == 0);
    }
  };
  expect_holds_at_random<Expect>(5'000, 50'000);
}

// The rule broken: the sender of one-way messages goes on without an answer, and overwrites what its peer has
// not read, who then waits for ever.
struct Unanswered : OneWay {
  static constexpr Pattern kPattern = Pattern::one_way_unanswered;
};
TEST(ChannelMutant, AdvanceWithoutAReceiveIsFound) {
  expect_found<Channels<Unanswered>>(rl::test_result_livelock, 10'000);
}
// With checks it ends as a record that names the peer, in every execution, before anything is overwritten.
TEST(Channel, AdvanceWithoutAReceiveIsRecorded) {
  struct Expect : Channels<Checked<Unanswered>> {
    void thread(unsigned index) override {
      if (index == 0) (void)this->session(0, 0, 0);  // alone: its peer would wait for what does not come
    }
    void after() override {
      RL_ASSERT(this->record[0].kind == static_cast<std::uint32_t>(protocol::kMisuse));
      RL_ASSERT(this->record[0].reserved == static_cast<std::uint32_t>(protocol::Misuse::not_heard));
      RL_ASSERT(this->record[0].peer == 1);
      RL_ASSERT(this->record[0].epoch == 101);
    }
  };
  expect_holds<Expect>(Search::full());
}

// A lane that only sends runs ahead of the one that receives.
struct LanesWithoutSync : OneLaneReceives {
  using Coop = NoSync;
  static constexpr bool kAdvanceBeforeClose = false;
};
TEST(ChannelMutant, NoSyncIsFound) {
  expect_found<Channels<LanesWithoutSync>>(rl::test_result_livelock, 100'000);
}
struct InOneBank : TwoRanks {
  template <class Memory>
  using View = OneBank<Memory>;
};
TEST(ChannelMutant, OneBankIsFound) { expect_found<Channels<InOneBank>>(rl::test_result_livelock, 10'000); }
// An epoch that nobody used is counted at the end of a session: then nobody is heard in it.
template <class Base>
struct CountsUnused : Base {
  struct Coop : exec::ModelCoop {
    bool sync_any(bool) {
      sync();
      return true;
    }
  };
};
struct OneEpochASession : ChannelCase<> {
  static constexpr int kEpochs = 4, kEpochsOfASession = 1;
};
TEST(Channel, OneEpochASession) { expect_holds_at_random<Channels<OneEpochASession>>(10'000, 100'000); }
TEST(ChannelMutant, CountingAnUnusedEpochIsFound) {
  expect_found<Channels<CountsUnused<OneEpochASession>>>(rl::test_result_livelock, 10'000);
}
struct NeverAtRest : BySentinel<TwoRanks> {
  using Space = NeverReset;
  template <class Memory>
  using View = exec::ModelRegion<Space, Memory>;
};
TEST(ChannelMutant, PacketsNeverPutBackAreFound) {
  expect_found<Channels<NeverAtRest>>(rl::test_result_user_assert_failed, 10'000);
}

// Put, signal, wait, get: plain cells, which the checker would find a race on.
template <class S, class CoopT, int lanes, template <class> class ViewOf>
struct Puts : Scenario {
  static constexpr int kThreads = 2 * lanes, kEpochs = 3;
  static constexpr unsigned kStepLimit = 20'000;
  using Memory = exec::ModelMemory<S, 2, 0, lanes>;
  using View = ViewOf<Memory>;

  Memory memory;
  protocol::RegionState<S> state[2];
  exec::ModelBarrier group[2];

  void before() override { exec::model_counters.restart(); }
  void thread(unsigned index) override {
    const int rank = static_cast<int>(index) / lanes, lane = static_cast<int>(index) % lanes, peer = 1 - rank;
    protocol::Control<S> control;
    control.timeout_ns = std::numeric_limits<std::uint64_t>::max();
    PutChannel<View, CoopT, false> ch(View(memory, rank), {lane, lanes, &group[rank]}, state[rank], control,
                                      1u << peer, {}, 0, 0);
    for (int epoch = 1; epoch <= kEpochs; ++epoch) {
      const auto value = static_cast<exec::Pack>(epoch);
      ch.put(peer, static_cast<std::uint32_t>(lane), {{value, value + 10}});
      ch.signal(peer);
      RL_ASSERT(ch.wait_signal(peer));
      const exec::Vec got = ch.get(peer, static_cast<std::uint32_t>(lanes - 1 - lane));
      RL_ASSERT(got.pack[0] == value && got.pack[1] == value + 10);
      ch.advance_epoch();
    }
  }
};
template <class Memory>
using Plain = exec::ModelRegion<ModelSpace, Memory>;
template <class Memory>
using Relaxed = exec::ModelRegion<RelaxedRelease, Memory>;
template <class Memory>
using NotAcquired = exec::ModelRegion<RelaxedAcquire, Memory>;

TEST(PutChannel, TwoRanks) {
  expect_holds<Puts<ModelSpace, exec::ModelCoop, 1, Plain>>(Search::bounded(2));
  expect_holds_at_random<Puts<ModelSpace, exec::ModelCoop, 1, Plain>>(10'000, 100'000);
}
TEST(PutChannel, TwoRanksOfTwoLanes) {
  expect_holds_at_random<Puts<ModelSpace, exec::ModelCoop, 2, Plain>>(5'000, 50'000);
}
TEST(PutChannelMutant, RelaxedSignalIsFound) {
  expect_found<Puts<RelaxedRelease, exec::ModelCoop, 1, Relaxed>>(rl::test_result_data_race, 10'000);
}
TEST(PutChannelMutant, RelaxedWaitIsFound) {
  expect_found<Puts<RelaxedAcquire, exec::ModelCoop, 1, NotAcquired>>(rl::test_result_data_race, 10'000);
}
TEST(PutChannelMutant, NoSyncIsFound) {
  expect_found<Puts<ModelSpace, NoSync, 2, Plain>>(rl::test_result_user_assert_failed, 10'000);
}

}  // namespace
}  // namespace nearlight::model
