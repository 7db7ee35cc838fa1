// Messages between two ranks at a time: turns and credits of each pair's own.
#include <gtest/gtest.h>

#include <limits>
#include <optional>
#include <type_traits>
#include <utility>

#include "algorithm/pipe.hpp"
#include "tests/model/exchange.hpp"
#include "tests/model/mutants.hpp"

namespace nearlight::model {
namespace {

using algorithm::Carrier;
using algorithm::Message;
using algorithm::PipeQueue;

constexpr auto kByLines = Carrier::lines;
constexpr auto kByCells = Carrier::cells;

// One message; `call`: messages of a rank with the same one go together.
struct Sent {
  int call, from, to;
  int bytes;
  Carrier carrier;
};

template <class Memory>
struct PipesMemory : Memory {
  // [owner][reader][carrier]
  typename std::remove_reference_t<decltype(std::declval<Memory&>().flag[0][0][0])> credit[Memory::kRanks]
                                                                                          [Memory::kRanks][2];
};
template <class S, class Memory>
struct ModelPipes : exec::ModelRegion<S, Memory> {
  ModelPipes(Memory& memory, int rank) : exec::ModelRegion<S, Memory>(memory, rank), pipes(&memory) {}
  typename S::Word& credit(int owner, int reader, int carrier) const {
    return pipes->credit[owner][reader][carrier];
  }
  Memory* pipes;
};

template <std::uint32_t last_epoch = 0xffffffffu>
struct Pair {
  using Space = exec::ModelSpaceWith<last_epoch>;
  using Coop = exec::ModelCoop;
  template <class S, class Memory>
  using View = ModelPipes<S, Memory>;
  static constexpr int kRanks = 2, kLanes = 1, kLanesOfLastRank = 0;
  static constexpr int kSlots = 1, kCells = 1;
  static constexpr bool kTold = false;
  // Far from the wrap.
  static constexpr std::uint32_t kInitialTurn = last_epoch == 0xffffffffu ? 100 : 0;
  static constexpr unsigned kStepLimit = 20'000;
};

// A sender takes any credit for the one it needs.
template <class S, class Memory>
struct NoCreditNeeded : ModelPipes<S, Memory> {
  using ModelPipes<S, Memory>::ModelPipes;
};

}  // namespace
}  // namespace nearlight::model

template <class S, class Memory>
struct nearlight::algorithm::PipeWait<nearlight::model::NoCreditNeeded<S, Memory>>
    : PipeWait<nearlight::model::ModelPipes<S, Memory>> {
  bool is_paid(std::uint32_t) const { return true; }
  bool is_over(std::uint32_t& seen) const {
    return this->sends || PipeWait<nearlight::model::ModelPipes<S, Memory>>::is_over(seen);
  }
};

namespace nearlight::model {
namespace {

template <class C>
struct Messages : Scenario {
  static constexpr int kThreads = kThreadsOf<C>;
  static constexpr unsigned kStepLimit = C::kStepLimit;
  static constexpr int kRanks = C::kRanks, kLanes = C::kLanes;
  static constexpr int kCount = static_cast<int>(sizeof(C::kSent) / sizeof(Sent));
  static constexpr int kMostBytes = 64;
  using Space = typename C::Space;
  using Memory = PipesMemory<exec::ModelMemory<Space, kRanks, C::kSlots, C::kCells>>;
  using View = typename C::template View<Space, Memory>;
  using Coop = typename C::Coop;
  using SessionT = protocol::Session<View, Coop>;
  using End = algorithm::PipeEnd<1, algorithm::NoBulk, SessionT, algorithm::NoDelay>;

  Memory memory;
  protocol::RegionState<Space> state[kRanks];
  algorithm::PipeState<Space> pipes[kRanks][kRanks];
  exec::ModelBarrier group[kRanks];
  exec::ModelBarrier between_calls[kRanks];
  char input[kCount][kMostBytes];
  char output[kCount][kMostBytes];

  void before() override {
    exec::model_counters.restart();
    const auto start = [](auto& word) {
      Space::template store<exec::Order::relaxed, exec::Scope::device>(word, C::kInitialTurn);
    };
    for (int rank = 0; rank < kRanks; ++rank) {
      for (int peer = 0; peer < kRanks; ++peer) {
        for (int carrier = 0; carrier < 2; ++carrier) {
          start(pipes[rank][peer].sent[carrier]);
          start(pipes[rank][peer].received[carrier]);
          if (C::kInitialTurn != 0) start(memory.credit[rank][peer][carrier]);
        }
      }
    }
    for (int message = 0; message < kCount; ++message) {
      for (int i = 0; i < kMostBytes; ++i) {
        input[message][i] = static_cast<char>(message * 40 + i + 1);
        output[message][i] = 0;
      }
    }
  }

  void thread(unsigned index) override {
    const int rank = static_cast<int>(index) / kLanes, lane = static_cast<int>(index) % kLanes;
    const int lanes = rank == kRanks - 1 && C::kLanesOfLastRank != 0 ? C::kLanesOfLastRank : kLanes;
    for (int call = 0; call <= C::kSent[kCount - 1].call; ++call) {
      run(rank, lane, lanes, call);
      exec::ModelCoop{lane, lanes, &between_calls[rank]}.sync();
    }
    for (int message = 0; message < kCount; ++message) {
      if (C::kSent[message].to != rank) continue;
      for (int i = 0; i < kMostBytes; ++i)
        RL_ASSERT(output[message][i] == (i < C::kSent[message].bytes ? input[message][i] : 0));
    }
  }

 private:
  void run(int rank, int lane, int lanes, int call) {
    Message messages[kCount];
    PipeQueue queues[2 * kRanks];
    std::uint32_t count = 0;
    int queue_count = 0;
    for (int peer = 0; peer < kRanks; ++peer) {
      for (int sends = 0; sends < 2; ++sends) {
        PipeQueue queue{peer, static_cast<std::uint32_t>(sends), count, 0};
        for (int i = 0; i < kCount; ++i) {
          const Sent& sent = C::kSent[i];
          if (sent.call != call ||
              (sends != 0 ? sent.from != rank || sent.to != peer : sent.to != rank || sent.from != peer)) {
            continue;
          }
          messages[count++] = {sends != 0 ? input[i] : output[i],
                               static_cast<std::uint64_t>(sent.bytes),
                               1,
                               static_cast<std::uint32_t>(sent.carrier == kByLines ? C::kSlots : C::kCells),
                               sent.carrier,
                               7};
          ++queue.count;
        }
        if (queue.count != 0) queues[queue_count++] = queue;
      }
    }
    if (queue_count == 0) return;
    protocol::Control<Space> control;
    control.timeout_ns = std::numeric_limits<std::uint64_t>::max();
    const View view(memory, rank);
    SessionT session(view, Coop{lane, lanes, &group[rank]}, state[rank], control, 0, 0);
    const algorithm::NoDelay none;
    if (kLanes > 1) {  // one queue a group, as on a GPU
      RL_ASSERT(queue_count == 1);
      End end(session, pipes[rank][queues[0].peer], queues[0], messages, 0, C::kTold, none);
      while (!end.done()) end.turn();
      end.close();
      return;
    }
    std::optional<End> ends[2 * kRanks];
    End* each[2 * kRanks];
    for (int i = 0; i < queue_count; ++i) {
      ends[i].emplace(session, pipes[rank][queues[i].peer], queues[i], messages, 0, C::kTold, none);
      each[i] = &*ends[i];
    }
    algorithm::run_ends(session, each, queue_count);
    for (int i = 0; i < queue_count; ++i) each[i]->close();
  }
};

// A sender that is quick would be four turns ahead.
struct ByLines : Pair<> {
  static constexpr Sent kSent[] = {{0, 0, 1, 37, kByLines}};
};
struct FewLines : Pair<> {
  static constexpr Sent kSent[] = {{0, 0, 1, 24, kByLines}};
};
struct ByCells : Pair<> {
  static constexpr Sent kSent[] = {{0, 0, 1, 64, kByCells}};
};
// Across calls, and by both in turns.
struct Calls : Pair<> {
  static constexpr Sent kSent[] = {{0, 0, 1, 8, kByLines},  {1, 0, 1, 17, kByCells}, {2, 0, 1, 20, kByLines},
                                   {3, 0, 1, 40, kByCells}, {4, 0, 1, 8, kByLines},  {5, 0, 1, 3, kByLines}};
};
struct CallsByLines : Pair<> {
  static constexpr Sent kSent[] = {{0, 0, 1, 8, kByLines},
                                   {1, 0, 1, 8, kByLines},
                                   {2, 0, 1, 8, kByLines},
                                   {3, 0, 1, 8, kByLines},
                                   {4, 0, 1, 8, kByLines}};
};
// Both send more than there is room for before they receive: alone each would wait for the other.
struct BothWays : Pair<> {
  static constexpr Sent kSent[] = {{0, 0, 1, 40, kByLines}, {0, 1, 0, 33, kByLines}, {0, 1, 0, 8, kByCells}};
};
struct BothWaysByCells : Pair<> {
  static constexpr Sent kSent[] = {{0, 0, 1, 64, kByCells}, {0, 1, 0, 50, kByCells}};
};
struct Ring : Pair<> {
  static constexpr int kRanks = 3;
  static constexpr Sent kSent[] = {
      {0, 0, 1, 20, kByLines}, {0, 1, 2, 20, kByLines}, {0, 2, 0, 20, kByLines}, {1, 1, 0, 33, kByCells}};
};
// Two ranks that a third one has no part with.
struct OthersStayAway : Pair<> {
  static constexpr int kRanks = 3;
  static constexpr Sent kSent[] = {{0, 0, 1, 30, kByLines}, {1, 1, 0, 30, kByLines}, {2, 2, 1, 9, kByLines}};
};
struct Told : Pair<> {
  static constexpr bool kTold = true;
  static constexpr Sent kSent[] = {{0, 0, 1, 12, kByLines}, {0, 0, 1, 30, kByCells}, {1, 0, 1, 8, kByLines}};
};
struct Lanes : Pair<> {
  static constexpr int kLanes = 2, kSlots = 2;
  static constexpr Sent kSent[] = {{0, 0, 1, 64, kByLines}, {1, 0, 1, 16, kByLines}};
};
struct LanesByCells : Pair<> {
  static constexpr int kLanes = 2, kCells = 2;
  static constexpr Sent kSent[] = {{0, 0, 1, 64, kByCells}, {1, 0, 1, 32, kByCells}, {2, 0, 1, 32, kByCells}};
};
// Slots that a short message leaves out keep what a longer one put there a cycle ago.
struct AcrossTheWrap : Pair<5> {
  static constexpr int kSlots = 2;
  static constexpr Sent kSent[] = {{0, 0, 1, 16, kByLines}, {0, 0, 1, 16, kByLines}, {0, 0, 1, 16, kByLines},
                                   {1, 0, 1, 8, kByLines},  {1, 0, 1, 8, kByLines},  {2, 0, 1, 16, kByLines},
                                   {2, 0, 1, 16, kByLines}, {2, 0, 1, 16, kByLines}, {2, 0, 1, 16, kByLines}};
};
struct AcrossTheWrapByLanes : AcrossTheWrap {
  static constexpr int kLanes = 2;
};
struct CellsAcrossTheWrap : Pair<5> {
  static constexpr Sent kSent[] = {{0, 0, 1, 64, kByCells}, {1, 0, 1, 64, kByCells}};
};

TEST(Pipe, FewLinesEveryInterleavingOfFewSwitches) {
  expect_holds<Messages<FewLines>>(Search::bounded(slow_tier() ? 3u : 2u));
}
TEST(Pipe, ByLines) { expect_holds_at_random<Messages<ByLines>>(10'000, 100'000); }
TEST(Pipe, ByCells) { expect_holds_at_random<Messages<ByCells>>(10'000, 100'000); }
TEST(Pipe, CallsByLines) { expect_holds_at_random<Messages<CallsByLines>>(10'000, 100'000); }
TEST(Pipe, Calls) { expect_holds_at_random<Messages<Calls>>(10'000, 100'000); }
TEST(Pipe, BothWays) { expect_holds_at_random<Messages<BothWays>>(10'000, 100'000); }
TEST(Pipe, BothWaysByCells) { expect_holds_at_random<Messages<BothWaysByCells>>(10'000, 100'000); }
TEST(Pipe, Ring) { expect_holds_at_random<Messages<Ring>>(5'000, 50'000); }
TEST(Pipe, OthersStayAway) { expect_holds_at_random<Messages<OthersStayAway>>(5'000, 50'000); }
TEST(Pipe, Told) { expect_holds_at_random<Messages<Told>>(5'000, 50'000); }
TEST(Pipe, Lanes) { expect_holds_at_random<Messages<Lanes>>(5'000, 50'000); }
TEST(Pipe, LanesByCells) { expect_holds_at_random<Messages<LanesByCells>>(5'000, 50'000); }
TEST(Pipe, AcrossTheWrap) { expect_holds_at_random<Messages<AcrossTheWrap>>(5'000, 50'000); }
TEST(Pipe, AcrossTheWrapByLanes) { expect_holds_at_random<Messages<AcrossTheWrapByLanes>>(5'000, 50'000); }
TEST(Pipe, CellsAcrossTheWrap) { expect_holds_at_random<Messages<CellsAcrossTheWrap>>(5'000, 50'000); }

template <class B>
struct IgnoresCredit : B {
  template <class S, class Memory>
  using View = NoCreditNeeded<S, Memory>;
};
// A lane gives the credit of a turn that another one is still to read.
template <class B>
struct CreditBeforeRead : B {
  using Coop = NoSync;
};
// The flag of any turn will do.
struct AnyFlag : ModelSpace {
  static bool try_load_line(const Line& line, std::uint32_t flag, Pack& out, std::uint32_t& seen) {
    return ModelSpace::try_load_line(line, flag, out, seen) || seen != 0;
  }
};
// Credits and flags are stored without release.
struct NoRelease : ModelSpace {
  template <Order, Scope scope>
  static void store(Word& word, std::uint32_t value) {
    ModelSpace::store<Order::relaxed, scope>(word, value);
  }
};
struct NoAcquire : ModelSpace {
  template <Order, Scope scope>
  static std::uint32_t load(const Word& word) {
    return ModelSpace::load<Order::relaxed, scope>(word);
  }
};
template <class S>
struct NoClearing : S {
  static void store_line(typename S::Line& line, Pack pack, std::uint32_t flag) {
    if (flag != 0) S::store_line(line, pack, flag);
  }
};
template <class S>
struct RelaxedClearing : S {
  template <Order, Scope scope>
  static void store(typename S::Word& word, std::uint32_t value) {
    S::template store<Order::relaxed, scope>(word, value);
  }
};
template <class B, class S>
struct In : B {
  using Space = S;
};

TEST(PipeMutant, ASenderThatIgnoresItsCreditIsFound) {
  expect_found<Messages<IgnoresCredit<ByLines>>>(rl::test_result_livelock, 10'000);
}
TEST(PipeMutant, ASenderThatIgnoresItsCreditBetweenCallsIsFound) {
  expect_found<Messages<IgnoresCredit<CallsByLines>>>(rl::test_result_livelock, 10'000);
}
TEST(PipeMutant, ASenderOfCellsThatIgnoresItsCreditIsFound) {
  expect_found<Messages<IgnoresCredit<ByCells>>>(rl::test_result_data_race, 10'000);
}
TEST(PipeMutant, ACreditBeforeTheLinesAreReadIsFound) {
  expect_found<Messages<CreditBeforeRead<Lanes>>>(rl::test_result_livelock, 10'000);
}
TEST(PipeMutant, ACreditBeforeTheCellsAreReadIsFound) {
  expect_found<Messages<CreditBeforeRead<LanesByCells>>>(rl::test_result_data_race, 10'000);
}
TEST(PipeMutant, TheFlagOfAnOldTurnIsFound) {
  expect_found<Messages<In<ByLines, AnyFlag>>>(rl::test_result_user_assert_failed, 10'000);
}
TEST(PipeMutant, CreditsWithoutReleaseAreFound) {
  expect_found<Messages<In<ByCells, NoRelease>>>(rl::test_result_data_race, 10'000);
}
TEST(PipeMutant, CreditsWithoutAcquireAreFound) {
  expect_found<Messages<In<ByCells, NoAcquire>>>(rl::test_result_data_race, 10'000);
}
TEST(PipeMutant, LinesThatAreNotClearedAtTheWrapAreFound) {
  expect_found<Messages<In<AcrossTheWrap, NoClearing<exec::ModelSpaceWith<5>>>>>(
      rl::test_result_user_assert_failed, 10'000);
}
TEST(PipeMutant, ACreditThatDoesNotReleaseTheClearingIsFound) {
  expect_found<Messages<In<AcrossTheWrap, RelaxedClearing<exec::ModelSpaceWith<5>>>>>(
      rl::test_result_data_race, 10'000);
}

}  // namespace
}  // namespace nearlight::model
