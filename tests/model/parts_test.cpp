// Collectives in which not every rank has something for every other one: empty units are the credits.
#include <gtest/gtest.h>

#include "algorithm/parts.hpp"
#include "algorithm/parts_simple.hpp"
#include "tests/model/exchange.hpp"
#include "tests/model/mutants.hpp"

namespace nearlight::model {
namespace {

using algorithm::Parts;
using algorithm::Share;

// unknown: as uneven, and no rank knows what the others give.
enum class Kind { all_gather, broadcast, all_to_all, uneven, unknown, reduce, reduce_scatter, all_reduce };

struct PartsStep {
  Kind kind;
  Protocol protocol;
  int count;  // elements of 4 bytes: of the message of an all_reduce, of one part else
  int root = 0;
  bool same_session = false;
  bool in_place = false;  // all_to_all: the input's memory is the output's
};

template <class C>
struct Moves : Scenario {
  static constexpr int kThreads = kThreadsOf<C>;
  static constexpr unsigned kStepLimit = C::kStepLimit;
  static constexpr int kRanks = C::kRanks, kLanes = C::kLanes;
  static constexpr int kSteps = static_cast<int>(sizeof(C::kStepList) / sizeof(PartsStep));
  static constexpr int kMost = 8;  // elements of a part
  static constexpr int kMaxCount = kMost * kRanks;
  using Space = typename C::Space;
  using Memory = exec::ModelMemory<Space, kRanks, C::kSlots, C::kCells, C::kPackets, 0>;
  using View = typename C::template View<Memory>;
  using Coop = typename C::Coop;
  using Buffer = algorithm::Buffer<Space, std::int32_t>;

  Memory memory;
  protocol::RegionState<Space> state[kRanks];
  exec::ModelBarrier group[kRanks];
  exec::ModelBarrier between_sessions[kRanks];
  std::int32_t input[kRanks][kSteps][kMaxCount];
  std::int32_t output[kRanks][kSteps][kMaxCount];

  static std::int32_t given(int rank, int step, int i) { return (rank + 1) * 10'000 + (step + 1) * 100 + i; }

  // Elements that `from` gives to `to`.
  static int count_of(const PartsStep& step, int from, int to) {
    switch (step.kind) {
      case Kind::broadcast:
        return from == step.root ? step.count : 0;
      case Kind::reduce:
        return to == step.root ? step.count : 0;
      case Kind::unknown:
      case Kind::uneven:  // the second of two gives nothing to the first, and so on
        return from > to ? 0 : from == to ? 1 : step.count;
      default:
        return step.count;
    }
  }
  // Where in its input.
  static int place_of(const PartsStep& step, int to) {
    const bool apart = step.kind == Kind::all_to_all || step.kind == Kind::uneven ||
                       step.kind == Kind::unknown || step.kind == Kind::reduce_scatter;
    return apart ? to * kMost : 0;
  }
  static bool reduces(Kind kind) { return kind == Kind::reduce || kind == Kind::reduce_scatter; }

  static Parts parts_of(const PartsStep& step, int rank, std::uint32_t span) {
    Parts parts;
    parts.most = static_cast<std::uint64_t>(step.count);
    parts.span = span;
    if (step.kind == Kind::unknown) {
      parts.most = 0;
      for (int peer = 0; peer < kRanks; ++peer) {
        const auto own = static_cast<std::uint64_t>(count_of(step, rank, peer));
        parts.most = own > parts.most ? own : parts.most;
      }
    }
    for (int peer = 0; peer < kRanks; ++peer) {
      parts.send[peer] = {static_cast<std::uint64_t>(place_of(step, peer)),
                          static_cast<std::uint64_t>(count_of(step, rank, peer))};
      parts.recv[peer] = {static_cast<std::uint64_t>(reduces(step.kind) ? 0 : peer * kMost),
                          static_cast<std::uint64_t>(count_of(step, peer, rank))};
    }
    return parts;
  }

  void before() override {
    exec::model_counters.restart();
    for (int rank = 0; rank < kRanks; ++rank) {
      Space::template store<exec::Order::relaxed, exec::Scope::device>(state[rank].epoch, C::kInitialEpoch);
      for (int step = 0; step < kSteps; ++step) {
        for (int i = 0; i < kMaxCount; ++i) {
          input[rank][step][i] = given(rank, step, i);
          output[rank][step][i] = -1;
        }
      }
    }
  }

  void thread(unsigned index) override {
    const int rank = static_cast<int>(index) / kLanes, lane = static_cast<int>(index) % kLanes;
    const int lanes = rank == kRanks - 1 && C::kLanesOfLastRank != 0 ? C::kLanesOfLastRank : kLanes;
    for (int step = 0; step < kSteps;) {
      const int first = step;
      run_session(rank, lane, lanes, step);
      C::fence_between_sessions();
      exec::ModelCoop{lane, lanes, &between_sessions[rank]}.sync();
      C::fence_between_sessions();
      for (int done = first; done < step; ++done) check(rank, done);
    }
  }

 private:
  void run_session(int rank, int lane, int lanes, int& step) {
    protocol::Control<Space> control;
    control.timeout_ns = std::numeric_limits<std::uint64_t>::max();
    const View view(memory, rank);
    protocol::Session session(view, Coop{lane, lanes, &group[rank]}, state[rank], control, 0, 0);
    do {
      run_step(session, rank, step);
      ++step;
    } while (step < kSteps && C::kStepList[step].same_session);
    session.close();
  }

  template <class SessionT>
  void run_step(SessionT& session, int rank, int index) {
    constexpr algorithm::PackMath<Space, std::int32_t, ReduceOp::sum> math{};
    constexpr algorithm::NoDelay none;
    using Packets = algorithm::SentinelUnits<NothingToRewrite>;
    const PartsStep& step = C::kStepList[index];
    const Share share{0, 1};
    if (step.kind == Kind::all_reduce) {
      const Buffer in(input[rank][index], static_cast<std::uint64_t>(step.count));
      const Buffer out(output[rank][index], static_cast<std::uint64_t>(step.count));
      return algorithm::one_shot_ll<std::remove_const_t<decltype(math)>, kRanks, 0>(session, share, in, out,
                                                                                    none);
    }
    const Buffer in(input[rank][index], kMaxCount);
    const Buffer out(step.in_place ? input[rank][index] : output[rank][index], kMaxCount);
    if (step.kind == Kind::unknown) {
      const Parts parts = parts_of(step, rank, session.view().slots() - 1);
      algorithm::move_parts<typename C::Lines, kRanks, C::kAgrees>(session, share, parts, in, out, none);
    } else if (step.protocol == Protocol::ll) {
      const Parts parts = parts_of(step, rank, session.view().slots());
      if (reduces(step.kind)) {
        algorithm::reduce_parts<typename C::Lines, kRanks>(session, share, parts, in, out, none, math);
      } else {
        algorithm::move_parts<typename C::Lines, kRanks>(session, share, parts, in, out, none);
      }
    } else if (step.protocol == Protocol::sentinel) {
      const Parts parts = parts_of(step, rank, session.view().packets());
      if (reduces(step.kind)) {
        algorithm::reduce_parts<Packets, kRanks>(session, share, parts, in, out, none, math);
      } else {
        algorithm::move_parts<Packets, kRanks>(session, share, parts, in, out, none);
      }
    } else {
      const Parts parts = parts_of(step, rank, session.view().cells());
      if (reduces(step.kind)) {
        algorithm::reduce_parts_simple<kRanks, 1>(session, share, parts, in, out, none, math);
      } else {
        algorithm::move_parts_simple<1>(session, share, parts, in, out, none);
      }
    }
  }

  void check(int rank, int index) {
    const PartsStep& step = C::kStepList[index];
    const auto& got = step.in_place ? input[rank][index] : output[rank][index];
    for (int i = 0; i < kMaxCount; ++i) {
      std::int32_t wanted = step.in_place ? given(rank, index, i) : -1;
      if (step.kind == Kind::all_reduce || reduces(step.kind)) {
        const int count = step.kind == Kind::all_reduce ? step.count : count_of(step, rank, rank);
        const int place = step.kind == Kind::all_reduce ? 0 : place_of(step, rank);
        if (i < count) {
          wanted = 0;
          for (int source = 0; source < kRanks; ++source) wanted += given(source, index, place + i);
        }
      } else {
        const int source = i / kMost;
        if (i % kMost < count_of(step, source, rank))
          wanted = given(source, index, place_of(step, rank) + i % kMost);
      }
      RL_ASSERT(got[i] == wanted);
    }
  }
};

constexpr auto kLl = Protocol::ll;
constexpr auto kSentinel = Protocol::sentinel;
constexpr auto kSimple = Protocol::simple;

struct Base : Case<> {
  static constexpr int kSlots = 1, kPackets = 1, kCells = 1;
  static constexpr bool kAgrees = true;
  using Lines = algorithm::LlUnits;
  static void fence_between_sessions() { Space::fence_system(); }
};
struct Unknown : Base {
  static constexpr int kSlots = 2;
  static constexpr PartsStep kStepList[] = {
      {Kind::unknown, kLl, 6}, {Kind::unknown, kLl, 1}, {Kind::unknown, kLl, 4}};
};
struct UnknownLanes : Base {
  static constexpr int kLanes = 2, kSlots = 3;
  static constexpr PartsStep kStepList[] = {
      {Kind::unknown, kLl, 8}, {Kind::broadcast, kLl, 4}, {Kind::unknown, kLl, 3}};
};
struct OneBroadcast : Base {
  static constexpr PartsStep kStepList[] = {{Kind::broadcast, kLl, 2}};
};
// A root that is quick would be three rounds ahead.
struct Broadcasts : Base {
  static constexpr PartsStep kStepList[] = {{Kind::broadcast, kLl, 7}, {Kind::broadcast, kLl, 2}};
};
struct BroadcastSessions : Base {
  static constexpr PartsStep kStepList[] = {{Kind::broadcast, kLl, 2},
                                            {Kind::broadcast, kLl, 2},
                                            {Kind::broadcast, kLl, 1},
                                            {Kind::broadcast, kLl, 2}};
};
struct Roots : Base {
  static constexpr int kRanks = 3;
  static constexpr PartsStep kStepList[] = {{Kind::broadcast, kLl, 3},
                                            {Kind::broadcast, kLl, 2, 2},
                                            {Kind::reduce, kLl, 2, 1},
                                            {Kind::broadcast, kLl, 2, 1}};
};
struct Reduces : Base {
  static constexpr PartsStep kStepList[] = {
      {Kind::reduce, kLl, 7}, {Kind::reduce, kLl, 2}, {Kind::reduce, kLl, 1, 1}};
};
struct ReducesBySentinel : Base {
  static constexpr PartsStep kStepList[] = {{Kind::reduce, kSentinel, 4},
                                            {Kind::reduce, kSentinel, 3},
                                            {Kind::reduce, kSentinel, 4},
                                            {Kind::reduce, kSentinel, 1, 1}};
};
struct SentinelRounds : Base {
  static constexpr PartsStep kStepList[] = {{Kind::reduce, kSentinel, 8},
                                            {Kind::reduce_scatter, kSentinel, 8, 0, true},
                                            {Kind::reduce, kSentinel, 3}};
};
struct AllKinds : Base {
  static constexpr int kSlots = 2;
  static constexpr PartsStep kStepList[] = {{Kind::all_gather, kLl, 5},     {Kind::all_to_all, kLl, 6},
                                            {Kind::reduce_scatter, kLl, 5}, {Kind::all_reduce, kLl, 4},
                                            {Kind::uneven, kLl, 7},         {Kind::all_reduce, kLl, 3}};
};
struct Mixed : Base {
  static constexpr int kRanks = 3, kCells = 2;
  static constexpr PartsStep kStepList[] = {{Kind::broadcast, kSimple, 8},
                                            {Kind::broadcast, kLl, 3},
                                            {Kind::reduce_scatter, kSentinel, 4},
                                            {Kind::reduce, kSimple, 5, 2}};
};
struct BySimple : Base {
  static constexpr PartsStep kStepList[] = {
      {Kind::broadcast, kSimple, 8}, {Kind::reduce, kSimple, 7, 1}, {Kind::uneven, kSimple, 8}};
};
// Credits of one lane for what another one reads.
struct Lanes : Base {
  static constexpr int kLanes = 2, kSlots = 2;
  static constexpr PartsStep kStepList[] = {
      {Kind::broadcast, kLl, 8}, {Kind::broadcast, kLl, 4}, {Kind::reduce, kLl, 6, 1}};
};
struct LockstepLanes : Lanes {
  using Space = LockstepPairs;
  template <class Memory>
  using View = exec::ModelRegion<Space, Memory>;
};
// What one lane is still to send no other one may overwrite. From a session's second round on the lanes do
// not meet between what they send and what they store, and of two slots a lane the second is loaded in there.
struct InPlace : Base {
  static constexpr int kLanes = 2, kSlots = 4;
  static constexpr PartsStep kStepList[] = {{Kind::all_to_all, kLl, 8, 0, false, true},
                                            {Kind::all_to_all, kLl, 8, 0, true, true}};
};
struct InPlaceAgainstOne : InPlace {
  static constexpr int kLanesOfLastRank = 1, kSlots = 3;
  static constexpr PartsStep kStepList[] = {{Kind::all_to_all, kLl, 2, 0, false, true},
                                            {Kind::all_to_all, kLl, 6, 0, true, true}};
};
struct InPlaceThreeRanks : InPlace {
  static constexpr int kRanks = 3;
};
struct InPlaceLockstep : InPlace {
  using Space = LockstepPairs;
  template <class Memory>
  using View = exec::ModelRegion<Space, Memory>;
};
struct InPlaceSteps : InPlace {
  static constexpr int kSlots = 3, kCells = 1;
  static constexpr PartsStep kStepList[] = {{Kind::all_to_all, kLl, 7, 0, false, true},
                                            {Kind::all_to_all, kSimple, 8, 0, false, true},
                                            {Kind::all_to_all, kLl, 3, 0, true, true}};
};
struct AcrossTheWrap : Case<5> {
  static constexpr int kSlots = 1;
  using Lines = algorithm::LlUnits;
  static constexpr bool kAgrees = true;
  static constexpr std::uint32_t kInitialEpoch = 3;
  static constexpr PartsStep kStepList[] = {
      {Kind::broadcast, kLl, 2}, {Kind::broadcast, kLl, 6}, {Kind::reduce, kLl, 4}};
  static void fence_between_sessions() { Space::fence_system(); }
};

TEST(Parts, OneBroadcastEveryInterleavingOfFewSwitches) {
  expect_holds<Moves<OneBroadcast>>(Search::bounded(slow_tier() ? 6u : 4u));
}
TEST(Parts, Broadcasts) { expect_holds_at_random<Moves<Broadcasts>>(10'000, 100'000); }
TEST(Parts, BroadcastSessions) { expect_holds_at_random<Moves<BroadcastSessions>>(10'000, 100'000); }
TEST(Parts, Roots) { expect_holds_at_random<Moves<Roots>>(5'000, 50'000); }
TEST(Parts, Reduces) { expect_holds_at_random<Moves<Reduces>>(10'000, 100'000); }
TEST(Parts, ReducesBySentinel) { expect_holds_at_random<Moves<ReducesBySentinel>>(10'000, 100'000); }
TEST(Parts, SentinelRounds) { expect_holds_at_random<Moves<SentinelRounds>>(5'000, 50'000); }
TEST(Parts, AllKinds) { expect_holds_at_random<Moves<AllKinds>>(5'000, 50'000); }
TEST(Parts, Mixed) { expect_holds_at_random<Moves<Mixed>>(5'000, 50'000); }
TEST(Parts, BySimple) { expect_holds_at_random<Moves<BySimple>>(5'000, 50'000); }
TEST(Parts, Lanes) { expect_holds_at_random<Moves<Lanes>>(5'000, 50'000); }
TEST(Parts, LockstepLanes) { expect_holds_at_random<Moves<LockstepLanes>>(5'000, 50'000); }
TEST(Parts, AcrossTheWrap) { expect_holds_at_random<Moves<AcrossTheWrap>>(5'000, 50'000); }

TEST(Parts, InPlaceEveryInterleavingOfFewSwitches) {
  expect_holds<Moves<InPlaceAgainstOne>>(Search::bounded(slow_tier() ? 1u : 0u));
}
TEST(Parts, InPlace) { expect_holds_at_random<Moves<InPlace>>(10'000, 100'000); }
TEST(Parts, InPlaceThreeRanks) { expect_holds_at_random<Moves<InPlaceThreeRanks>>(5'000, 50'000); }
TEST(Parts, InPlaceLockstep) { expect_holds_at_random<Moves<InPlaceLockstep>>(5'000, 50'000); }
TEST(Parts, InPlaceSteps) { expect_holds_at_random<Moves<InPlaceSteps>>(5'000, 50'000); }

TEST(Parts, UnknownSizes) { expect_holds_at_random<Moves<Unknown>>(10'000, 100'000); }
TEST(Parts, UnknownSizesLanes) { expect_holds_at_random<Moves<UnknownLanes>>(5'000, 50'000); }

// Each rank goes as many rounds as its own parts have.
template <class B>
struct OwnRounds : B {
  static constexpr bool kAgrees = false;
};
// Who has nothing for a rank sends it nothing, and nobody waits for it.
template <class B>
struct WithoutCredits : B {
  struct Lines : algorithm::LlUnits {
    static constexpr std::uint32_t kLeast = 0;
  };
};
// A lane gives the credit of a round that another one is still to read.
template <class B>
struct CreditBeforeRead : B {
  using Coop = NoSync;
};
// A lane receives, and stores, what belongs where its neighbour sends from.
template <class B>
struct ReceivedByAnother : B {
  struct Lines : algorithm::LlUnits {
    struct Unit {
      exec::Pack pack = 0;
      bool received = false;
    };
    template <class Bufs>
    static Unit load(const Bufs& buffer, std::uint64_t index) {
      return {LlUnits::load(buffer, index)};
    }
    template <class Bufs>
    static void store(const Bufs& buffer, std::uint64_t index, Unit unit) {
      LlUnits::store(buffer, unit.received ? index ^ 1 : index, unit.pack);
    }
    static Unit to_send(Unit unit) { return unit; }
    template <class V>
    static void send(const V& view, int peer, std::uint32_t slot, Unit unit, std::uint32_t epoch) {
      LlUnits::send(view, peer, slot, unit.pack, epoch);
    }
    template <class V>
    static bool try_receive(const V& view, int source, std::uint32_t slot, std::uint32_t epoch, Unit& unit) {
      unit.received = true;
      return LlUnits::try_receive(view, source, slot ^ 1, epoch, unit.pack);
    }
    // Compiled, never run: no step reduces.
    template <int kMax, class Math>
    static Unit reduce(const Math&, Unit own, const Unit (&)[kMax - 1], int, int) {
      return own;
    }
  };
};
// The same calls with an output of their own.
template <class B>
struct Apart : B {
  static constexpr PartsStep kStepList[] = {{Kind::all_to_all, kLl, 8}, {Kind::all_to_all, kLl, 8, 0, true}};
};
template <class B, template <class> class V>
struct Seen : B {
  template <class Memory>
  using View = V<Memory>;
};

TEST(PartsMutant, NoCreditBetweenRoundsIsFound) {
  expect_found<Moves<WithoutCredits<Broadcasts>>>(rl::test_result_livelock, 10'000);
}
TEST(PartsMutant, NoCreditBetweenSessionsIsFound) {
  expect_found<Moves<WithoutCredits<BroadcastSessions>>>(rl::test_result_livelock, 10'000);
}
TEST(PartsMutant, NoCreditOfAReduceIsFound) {
  expect_found<Moves<WithoutCredits<Reduces>>>(rl::test_result_livelock, 10'000);
}
TEST(PartsMutant, CreditBeforeReadIsFound) {
  expect_found<Moves<CreditBeforeRead<Lanes>>>(rl::test_result_livelock, 10'000);
}
TEST(PartsMutant, RoundsThatAreNotAgreedOnAreFound) {
  expect_found<Moves<OwnRounds<Unknown>>>(rl::test_result_user_assert_failed, 10'000);
}
TEST(PartsMutant, InPlaceReceivedByAnotherIsFound) {
  expect_found<Moves<ReceivedByAnother<InPlace>>>(rl::test_result_user_assert_failed, 10'000);
}
// That is all that is wrong with it.
TEST(PartsMutant, ReceivedByAnotherHoldsApart) {
  expect_holds_at_random<Moves<ReceivedByAnother<Apart<InPlace>>>>(10'000, 10'000);
}
TEST(PartsMutant, OneBankIsFound) {
  expect_found<Moves<Seen<Broadcasts, OneBank>>>(rl::test_result_livelock, 10'000);
}

}  // namespace
}  // namespace nearlight::model
