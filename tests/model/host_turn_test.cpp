// A kernel's turn on the host: what either side finds when the other has told it so.
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>

#include "algorithm/host_turn.hpp"
#include "tests/model/checker.hpp"
#include "tests/model/mutants.hpp"

namespace nearlight::model {
namespace {

struct TurnCase {
  static constexpr int kTurns = 3;
  static constexpr std::uint64_t kPatience =
      std::numeric_limits<std::uint64_t>::max();  // of the device, polls
  static constexpr int kAnswered = kTurns;        // the host answers so many, and then stops everything
  using Device = ModelSpace;
  using Host = ModelSpace;
};

template <class C>
struct Turns : Scenario {
  static constexpr int kThreads = 2;
  static constexpr unsigned kStepLimit = 3'000;
  using Space = ModelSpace;

  algorithm::HostTurn<Space::Word> turn;
  rl::var<std::uint64_t> staged;  // stands for what the copies in front of the kernel and behind it move
  int done = 0;                   // turns whose answer the device has seen

  static std::uint64_t given(int i) { return 100u + static_cast<std::uint64_t>(i); }
  static std::uint32_t get(const Space::Word& word) {
    return Space::load<exec::Order::relaxed, exec::Scope::system>(word);
  }

  void before() override {
    exec::model_counters.restart();
    // Numbers may wrap.
    Space::store<exec::Order::relaxed, exec::Scope::system>(turn.asked, ~std::uint32_t{0});
    Space::store<exec::Order::relaxed, exec::Scope::system>(turn.answered, ~std::uint32_t{0});
  }

  void thread(unsigned index) override { index == 0 ? device() : host(); }

  void device() {
    for (int i = 0; i < C::kTurns; ++i) {
      if (get(turn.stopped) != 0) return;
      staged(RL_INFO).store(given(i));
      algorithm::HostRequest request;
      request.op = static_cast<std::uint32_t>(i);
      request.count = (std::uint64_t{1} << 40) + static_cast<std::uint64_t>(i);
      request.factor = ~request.count;
      algorithm::take_host_turn<typename C::Device>(turn, request, C::kPatience);
      if (get(turn.stopped) != 0) return;
      RL_ASSERT(staged(RL_INFO).load() == 2 * given(i));
      done = i + 1;
    }
  }

  void host() {
    std::uint32_t served = ~std::uint32_t{0};
    for (int i = 0; i < C::kTurns;) {
      const bool did =
          algorithm::serve_host_turn<typename C::Host>(turn, served, [this, &i](const auto& request) {
            if (i >= C::kAnswered) {
              Space::store<exec::Order::relaxed, exec::Scope::system>(turn.stopped, 1u);
              return false;
            }
            RL_ASSERT(request.op == static_cast<std::uint32_t>(i));
            RL_ASSERT(request.count == (std::uint64_t{1} << 40) + static_cast<std::uint64_t>(i));
            RL_ASSERT(request.factor == ~request.count);
            RL_ASSERT(staged(RL_INFO).load() == given(i));
            staged(RL_INFO).store(2 * given(i));
            return true;
          });
      if (did) ++i;
      if (!did && get(turn.stopped) != 0) return;
      if (!did) rl::yield(1, RL_INFO);
    }
  }

  void after() override {
    RL_ASSERT(done <= C::kAnswered);
    if (C::kPatience == std::numeric_limits<std::uint64_t>::max()) RL_ASSERT(done == C::kAnswered);
    if (C::kAnswered == C::kTurns && get(turn.gave_up) == 0) RL_ASSERT(done == C::kTurns);
    if (get(turn.gave_up) != 0) RL_ASSERT(get(turn.stopped) != 0);
  }
};

struct StoppedByTheHost : TurnCase {
  static constexpr int kAnswered = 1;
};
struct ImpatientDevice : TurnCase {
  static constexpr std::uint64_t kPatience = 2;
};
struct AsksWithoutRelease : TurnCase {
  using Device = RelaxedRelease;
};
struct TakesTheAnswerWithoutAcquire : TurnCase {
  using Device = RelaxedAcquire;
};
struct TakesTheRequestWithoutAcquire : TurnCase {
  using Host = RelaxedAcquire;
};
struct AnswersWithoutRelease : TurnCase {
  using Host = RelaxedRelease;
};

TEST(HostTurn, EveryInterleavingOfFewSwitches) {
  expect_holds<Turns<TurnCase>>(Search::bounded(slow_tier() ? 3u : 2u));
}
TEST(HostTurn, Holds) { expect_holds_at_random<Turns<TurnCase>>(20'000, 200'000); }
TEST(HostTurn, StoppedByTheHost) { expect_holds_at_random<Turns<StoppedByTheHost>>(20'000, 200'000); }

// [H1]
TEST(HostTurnMutant, AsksWithoutRelease) {
  expect_found<Turns<AsksWithoutRelease>>(rl::test_result_data_race, 20'000);
}
TEST(HostTurnMutant, TakesTheRequestWithoutAcquire) {
  expect_found<Turns<TakesTheRequestWithoutAcquire>>(rl::test_result_data_race, 20'000);
}
// [H2]
TEST(HostTurnMutant, AnswersWithoutRelease) {
  expect_found<Turns<AnswersWithoutRelease>>(rl::test_result_data_race, 20'000);
}
TEST(HostTurnMutant, TakesTheAnswerWithoutAcquire) {
  expect_found<Turns<TakesTheAnswerWithoutAcquire>>(rl::test_result_data_race, 20'000);
}

// A reset between two turns (runtime/staged_path.cpp): somebody stops the first, which the host may have seen
// or not; the device's side then rests, which brings in a new time, and lets calls in again. Nothing of the
// old time may be served in the new one.
struct ResetTurnCase {
  static constexpr bool kForgets = true;  // in the first half, before anything works again
};
template <class C>
struct TurnsAroundAReset : Scenario {
  static constexpr int kThreads = 3;
  static constexpr unsigned kStepLimit = 3'000;
  using Space = ModelSpace;

  algorithm::HostTurn<Space::Word> turn;
  Space::Word has_stopped, over;
  rl::mutex calling;
  // Under it.
  std::uint32_t served = 0;
  std::uint32_t time = 0;  // the CPU ranks': how often they were reset
  std::uint32_t answered_in_the_new = 0;

  static std::uint32_t get(const Space::Word& word) {
    return Space::load<exec::Order::relaxed, exec::Scope::system>(word);
  }
  static void set(Space::Word& word, std::uint32_t value) {
    Space::store<exec::Order::relaxed, exec::Scope::system>(word, value);
  }

  void before() override { exec::model_counters.restart(); }

  void thread(unsigned index) override {
    if (index == 0) return device();
    if (index == 1) return host();
    set(turn.stopped, 1);
    set(has_stopped, 1);
  }

  void ask(std::uint32_t in) {
    algorithm::HostRequest request;
    request.op = in;
    algorithm::take_host_turn<Space>(turn, request, std::numeric_limits<std::uint64_t>::max());
  }

  void device() {
    ask(0);
    while (get(has_stopped) == 0) rl::yield(1, RL_INFO);
    calling.lock(RL_INFO);
    if (C::kForgets) algorithm::forget_host_turns<Space>(turn, served);
    time = 1;
    calling.unlock(RL_INFO);
    rl::yield(1, RL_INFO);
    calling.lock(RL_INFO);
    algorithm::forget_host_turns<Space>(turn, served);
    set(turn.answered, served);
    set(turn.stopped, 0);
    calling.unlock(RL_INFO);
    ask(1);
    set(over, 1);
  }

  void host() {
    while (get(over) == 0) {
      calling.lock(RL_INFO);
      const bool did = algorithm::serve_host_turn<Space>(turn, served, [this](const auto& request) {
        RL_ASSERT(request.op == time);
        answered_in_the_new += time;
        return true;
      });
      calling.unlock(RL_INFO);
      if (!did) rl::yield(1, RL_INFO);
    }
  }

  void after() override { RL_ASSERT(answered_in_the_new == 1); }
};
struct ForgetsNothing : ResetTurnCase {
  static constexpr bool kForgets = false;
};

TEST(HostTurn, AResetForgetsWhatWasAsked) {
  expect_holds<TurnsAroundAReset<ResetTurnCase>>(Search::bounded(2));
  expect_holds_at_random<TurnsAroundAReset<ResetTurnCase>>(20'000, 200'000);
}
TEST(HostTurnMutant, AResetThatForgetsNothing) {
  expect_found<TurnsAroundAReset<ForgetsNothing>>(rl::test_result_user_assert_failed, 20'000);
}

// A device that gives up leaves what it staged to a host that may still be at it. The copy behind the kernel
// then brings something undefined, which the scenario does not look at, and nothing is asked any more.
TEST(HostTurn, ImpatientDevice) { expect_holds_at_random<Turns<ImpatientDevice>>(20'000, 200'000); }

}  // namespace
}  // namespace nearlight::model
