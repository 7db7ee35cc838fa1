// A reset after ranks have given up: what they have sent by then, and what one of them is still sending, must
// not be taken for anything that comes after it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>

#include "algorithm/one_shot.hpp"
#include "algorithm/one_shot_sentinel.hpp"
#include "tests/model/exchange.hpp"
#include "tests/model/mutants.hpp"

namespace nearlight::model {
namespace {

constexpr auto kLl = Protocol::ll;
constexpr auto kSimple = Protocol::simple;
constexpr auto kSentinel = Protocol::sentinel;

struct ResetCase : Case<> {
  static constexpr std::uint64_t kPatience = 1;  // before the reset: any rank may give up at any time
  static constexpr int kMissingRank = -1;        // makes none of the calls before the reset
  static constexpr int kLateRank = -1;           // begins when the one after it has given up
  static constexpr int kStepsBefore = 2;         // of the list; the others come after the reset
  // The rules, for mutants to break.
  static constexpr bool kWaitForEnd = true;   // [R1] nobody clears before all have ended
  static constexpr bool kWaitForRest = true;  // [R2] nobody sends before all have cleared
  static constexpr bool kClears = true;       // [R3] scratch is put to rest
  static constexpr bool kMovesOn = true;      // [R4] with an epoch that nobody has had
  static constexpr bool kForgives = true;     // [R5] and without the failure
};

// The steps of reset_together (runtime/recovery.hpp) around the product's protocols.
template <class C>
struct Reset : Scenario {
  static constexpr int kThreads = C::kRanks;
  static constexpr unsigned kStepLimit = C::kStepLimit;
  static constexpr int kRanks = C::kRanks;
  static constexpr int kSteps = static_cast<int>(sizeof(C::kStepList) / sizeof(Step));
  static constexpr int kMaxCount = 16;
  using Space = typename C::Space;
  using Memory = exec::ModelMemory<Space, kRanks, C::kSlots, C::kCells, C::kPackets>;
  using View = typename C::template View<Memory>;

  struct Rank {
    protocol::RegionState<Space> state;
    typename Space::Word abort, claim, valid;
    protocol::FaultRecord record{};
    std::int32_t input[kSteps][kMaxCount], output[kSteps][kMaxCount];
  };
  Memory memory;
  Rank ranks[kRanks];
  rl::var<std::uint32_t> epochs[kRanks];
  // What the exchange does: all ranks come to it.
  exec::ModelBarrierOf<kRanks> ended, told, rested;

  static std::int32_t given(int rank, int step, int i) { return (rank + 1) * 10'000 + (step + 1) * 100 + i; }

  static void set(typename Space::Word& word, std::uint32_t value) {
    Space::template store<exec::Order::relaxed, exec::Scope::system>(word, value);
  }
  static std::uint32_t get(const typename Space::Word& word) {
    return Space::template load<exec::Order::relaxed, exec::Scope::device>(word);
  }

  void before() override {
    exec::model_counters.restart();
    for (int rank = 0; rank < kRanks; ++rank) {
      set(ranks[rank].state.epoch, C::kInitialEpoch);
      for (int step = 0; step < kSteps; ++step) {
        for (int i = 0; i < kMaxCount; ++i) {
          ranks[rank].input[step][i] = given(rank, step, i);
          ranks[rank].output[step][i] = -1;
        }
      }
    }
  }

  void thread(unsigned index) override {
    const int number = static_cast<int>(index);
    if (number == C::kLateRank) {
      while (get(ranks[number + 1].state.failed) == 0) rl::yield(1, RL_INFO);
    }
    if (number != C::kMissingRank) {
      for (int step = 0; step < C::kStepsBefore; ++step) run_step(number, step, C::kPatience);
    }
    reset(number);
    for (int step = C::kStepsBefore; step < kSteps; ++step) {
      run_step(number, step, std::numeric_limits<std::uint64_t>::max());
      check_output(number, step);
    }
  }

 private:
  void reset(int number) {
    Rank& rank = ranks[number];
    if (C::kWaitForEnd) ended.arrive_and_wait(number, kRanks);
    std::uint32_t epoch = C::kMovesOn ? 0 : C::kInitialEpoch;
    if (C::kMovesOn && C::kWaitForEnd) {
      epochs[number](RL_INFO).store(get(rank.state.epoch));
      told.arrive_and_wait(number, kRanks);
      for (int from = 0; from < kRanks; ++from)
        epoch = std::max<std::uint32_t>(epoch, epochs[from](RL_INFO).load());
    }
    if (!C::kWaitForEnd) epoch = C::kInitialEpoch + C::kStepsBefore;  // a rank that did all it could
    if (C::kClears) rest_scratch(number);
    set(rank.state.epoch, C::kMovesOn ? epoch + 4 : epoch);
    if (C::kForgives) set(rank.state.failed, 0);
    if (C::kWaitForRest) rested.arrive_and_wait(number, kRanks);
    set(rank.abort, 0);
    set(rank.valid, 0);
  }

  void rest_scratch(int number) {
    const View view(memory, number);
    for (int bank = 0; bank < 2; ++bank) {
      for (int source = 0; source < kRanks; ++source) {
        for (std::uint32_t slot = 0; slot < view.slots(); ++slot)
          Space::store_line(view.line(number, bank, source, slot), 0, 0);
        for (std::uint32_t packet = 0; packet < view.packets(); ++packet)
          Space::store_packet(view.packet(number, bank, source, packet), {{~exec::Pack{0}, ~exec::Pack{0}}});
        set(view.flag(number, bank, source), 0);
      }
    }
  }

  void run_step(int number, int step, std::uint64_t patience) {
    using Math = algorithm::PackMath<Space, std::int32_t, ReduceOp::sum>;
    Rank& rank = ranks[number];
    protocol::Control<Space> control;
    control.abort = &rank.abort;  // no record: which thread may write one is no matter here
    control.timeout_ns = patience;
    protocol::Session session(View(memory, number), exec::ModelCoop{0, 1, nullptr}, rank.state, control, 0,
                              0);
    const auto count = static_cast<std::uint64_t>(C::kStepList[step].count);
    const algorithm::Buffer<Space, std::int32_t> in(rank.input[step], count), out(rank.output[step], count);
    if (C::kStepList[step].protocol == kLl) {
      algorithm::one_shot_ll<Math, kRanks, C::kHeld>(session, {0, 1}, in, out, algorithm::NoDelay{});
    } else if (C::kStepList[step].protocol == kSentinel) {
      algorithm::one_shot_sentinel<Math, typename C::Rewrite, kRanks>(session, {0, 1}, 1, in, out,
                                                                      algorithm::NoDelay{});
    } else {
      algorithm::one_shot_simple<Math, kRanks, 1>(session, {0, 1}, in, out, algorithm::NoDelay{});
    }
    session.close();
    Space::fence_system();  // what lies between two sessions (E3)
  }

  void check_output(int number, int step) {
    for (int i = 0; i < kMaxCount; ++i) {
      std::int32_t sum = 0;
      for (int source = 0; source < kRanks; ++source) sum += given(source, step, i);
      RL_ASSERT(ranks[number].output[step][i] == (i < C::kStepList[step].count ? sum : -1));
    }
  }
};

struct LlReset : ResetCase {
  static constexpr Step kStepList[] = {{kLl, 2}, {kLl, 2}, {kLl, 2}, {kLl, 2}, {kLl, 2}};
};
struct SimpleReset : ResetCase {
  static constexpr Step kStepList[] = {{kSimple, 4}, {kSimple, 4}, {kSimple, 4}, {kSimple, 4}, {kSimple, 4}};
};
struct SentinelReset : ResetCase {
  static constexpr Step kStepList[] = {
      {kSentinel, 4}, {kSentinel, 4}, {kSentinel, 4}, {kSentinel, 4}, {kSentinel, 4}};
};
struct MixedReset : ResetCase {
  static constexpr Step kStepList[] = {{kSentinel, 4}, {kLl, 2}, {kLl, 2}, {kSentinel, 4}, {kSimple, 4}};
};
struct LlResetThree : LlReset {
  static constexpr int kRanks = 3;
};
struct SentinelResetThree : SentinelReset {
  static constexpr int kRanks = 3;
};
template <class Base>
struct Missing : Base {
  static constexpr int kMissingRank = 0;
};

template <class Base>
struct Late : Base {
  static constexpr int kLateRank = 0;
};

TEST(Reset, Ll) { expect_holds_at_random<Reset<LlReset>>(10'000, 50'000); }
TEST(Reset, Simple) { expect_holds_at_random<Reset<SimpleReset>>(10'000, 50'000); }
TEST(Reset, Sentinel) { expect_holds_at_random<Reset<SentinelReset>>(10'000, 50'000); }
TEST(Reset, Mixed) { expect_holds_at_random<Reset<MixedReset>>(10'000, 50'000); }
TEST(Reset, LlThreeRanks) { expect_holds_at_random<Reset<LlResetThree>>(3'000, 20'000); }
TEST(Reset, SentinelThreeRanks) { expect_holds_at_random<Reset<SentinelResetThree>>(3'000, 20'000); }
TEST(Reset, LlRankMissing) { expect_holds_at_random<Reset<Missing<LlReset>>>(10'000, 50'000); }
TEST(Reset, SimpleRankMissing) { expect_holds_at_random<Reset<Missing<SimpleReset>>>(10'000, 50'000); }
TEST(Reset, SentinelRankMissing) { expect_holds_at_random<Reset<Missing<SentinelReset>>>(10'000, 50'000); }
TEST(Reset, LlRankLate) { expect_holds_at_random<Reset<Late<LlReset>>>(10'000, 50'000); }
TEST(Reset, SimpleRankLate) { expect_holds_at_random<Reset<Late<SimpleReset>>>(10'000, 50'000); }
TEST(Reset, SentinelRankLate) { expect_holds_at_random<Reset<Late<SentinelReset>>>(10'000, 50'000); }

template <class Base>
struct NoWaitForEnd : Base {
  static constexpr bool kWaitForEnd = false;
};
template <class Base>
struct NoWaitForRest : Base {
  static constexpr bool kWaitForRest = false;
};
template <class Base>
struct NoClearing : Base {
  static constexpr bool kClears = false;
};
template <class Base>
struct NoClearingSameEpoch : NoClearing<Base> {
  static constexpr bool kMovesOn = false;
};
template <class Base>
struct NoForgiving : Base {
  static constexpr bool kForgives = false;
};

// What a peer still sends lands in scratch that is at rest already; the model sees it as a store that is not
// ordered after the clearing.
TEST(ResetMutant, NoWaitForThePeersEndIsFound) {
  expect_found<Reset<NoWaitForEnd<Late<SentinelReset>>>>(rl::test_result_data_race, 20'000);
}
// What a peer sends after the reset is wiped out.
TEST(ResetMutant, NoWaitForThePeersRestIsFound) {
  expect_found<Reset<NoWaitForRest<LlReset>>>(rl::test_result_livelock, 20'000);
}
TEST(ResetMutant, NoClearingIsFound) {
  expect_found<Reset<NoClearing<Missing<SentinelReset>>>>(rl::test_result_user_assert_failed, 20'000);
}
TEST(ResetMutant, NoClearingWithTheSameEpochsIsFound) {
  expect_found<Reset<NoClearingSameEpoch<LlReset>>>(rl::test_result_user_assert_failed, 20'000);
}
TEST(ResetMutant, FailureThatStaysIsFound) {
  expect_found<Reset<NoForgiving<Missing<LlReset>>>>(rl::test_result_user_assert_failed, 20'000);
}

}  // namespace
}  // namespace nearlight::model
