// Ranks that stop, are slow or are told to stop: every wait ends, the first failure is recorded once, and a
// rank that has not failed has right results.
#pragma once

#include <cstdint>

#include "algorithm/kinds.hpp"
#include "algorithm/one_shot.hpp"
#include "tests/model/exchange.hpp"

namespace nearlight::model {

// What a failing case may change beside what any case may.
struct FailingCase : Case<> {
  static constexpr int kDeadRank = -1;  // stops before step kDeadStep
  static constexpr int kDeadStep = 0;
  static constexpr std::uint64_t kPatience =
      60;  // of one wait, on the model's clock: long enough for a live peer to answer
  static constexpr int kAbortedRank = -1;  // its host sets the abort word at some time
  static constexpr int kWatchedRank = -1;  // its host waits for the record, which must come
  static constexpr bool kExact =
      false;  // the dead rank is the only reason to fail: who fails, when and why is known
  static constexpr protocol::Wait kKind = protocol::Wait::timeout;
  static constexpr std::uint32_t kSeen = 0;  // of the flag that stayed away
};

template <class C>
struct Failing : Scenario {
  static constexpr int kThreads = kThreadsOf<C> + (C::kAbortedRank >= 0 || C::kWatchedRank >= 0 ? 1 : 0);
  static constexpr unsigned kStepLimit = C::kStepLimit;
  static constexpr int kRanks = C::kRanks, kLanes = C::kLanes;
  static constexpr int kSteps = static_cast<int>(sizeof(C::kStepList) / sizeof(Step));
  static constexpr int kMaxCount = 16;
  using Space = typename C::Space;
  using Memory = exec::ModelMemory<Space, kRanks, C::kSlots, C::kCells>;
  using View = typename C::template View<Memory>;
  using Coop = typename C::Coop;

  struct Rank {
    protocol::RegionState<Space> state;
    typename Space::Word abort, claim, valid;
    protocol::FaultRecord record{};
    exec::ModelBarrier group, between_sessions;
    std::int32_t input[kSteps][kMaxCount], output[kSteps][kMaxCount];
  };
  Memory memory;
  Rank ranks[kRanks];

  static std::int32_t given(int rank, int step, int i) { return (rank + 1) * 10'000 + (step + 1) * 100 + i; }

  void before() override {
    exec::model_counters.restart();
    for (int rank = 0; rank < kRanks; ++rank) {
      for (int step = 0; step < kSteps; ++step) {
        for (int i = 0; i < kMaxCount; ++i) {
          ranks[rank].input[step][i] = given(rank, step, i);
          ranks[rank].output[step][i] = -1;
        }
      }
    }
  }

  void thread(unsigned index) override {
    if (index == static_cast<unsigned>(kThreadsOf<C>)) return host();
    const int number = static_cast<int>(index) / kLanes, lane = static_cast<int>(index) % kLanes;
    Rank& rank = ranks[number];
    for (int step = 0; step < kSteps;) {
      if (number == C::kDeadRank && step >= C::kDeadStep) return;
      const bool failed_before = has_failed(rank);
      const std::uint64_t polls_before = exec::model_counters.polls[index];
      const int first = step;
      run_session(number, lane, step);
      exec::ModelCoop{lane, kLanes, &rank.between_sessions}.sync();
      if (failed_before)
        RL_ASSERT(exec::model_counters.polls[index] == polls_before);  // later epochs do not wait
      if (has_failed(rank)) continue;
      for (int done = first; done < step; ++done) check_output(rank, done);
    }
  }

  void after() override {
    for (int number = 0; number < kRanks; ++number) {
      if (number == C::kDeadRank) continue;
      Rank& rank = ranks[number];
      if (C::kExact) RL_ASSERT(has_failed(rank));
      if (has_failed(rank)) check_record(number);
    }
  }

 private:
  static bool has_failed(const Rank& rank) {
    return Space::template load<exec::Order::relaxed, exec::Scope::device>(rank.state.failed) != 0;
  }

  void host() {
    if constexpr (C::kAbortedRank >= 0) {
      Space::template store<exec::Order::relaxed, exec::Scope::system>(ranks[C::kAbortedRank].abort, 1u);
    }
    if constexpr (C::kWatchedRank >= 0) {
      const Rank& rank = ranks[C::kWatchedRank];
      while (Space::template load<exec::Order::acquire, exec::Scope::system>(rank.valid) == 0)
        rl::yield(1, RL_INFO);
      RL_ASSERT(rank.claim.claimed_by(RL_INFO).load() >=
                0);  // [F1]: a data race unless the record is published by `valid`
      check_record(C::kWatchedRank);
    }
  }

  void run_session(int number, int lane, int& step) {
    Rank& rank = ranks[number];
    protocol::Control<Space> control;
    control.abort = &rank.abort;
    control.claim = &rank.claim;
    control.valid = &rank.valid;
    control.record = &rank.record;
    control.timeout_ns = C::kPatience;
    protocol::Session session(View(memory, number), Coop{lane, kLanes, &rank.group}, rank.state, control, 7,
                              3);
    do {
      run_step(session, rank, step);
      ++step;
    } while (step < kSteps && C::kStepList[step].same_session);
    session.close();
  }

  template <class SessionT>
  void run_step(SessionT& session, Rank& rank, int step) {
    using Math = algorithm::PackMath<Space, std::int32_t, ReduceOp::sum>;
    const auto count = static_cast<std::uint64_t>(C::kStepList[step].count);
    const algorithm::Buffer<Space, std::int32_t> in(rank.input[step], count), out(rank.output[step], count);
    if (C::kStepList[step].protocol == Protocol::ll) {
      algorithm::one_shot_ll<Math, kRanks, C::kHeld>(session, {0, 1}, in, out, algorithm::NoDelay{});
    } else {
      algorithm::one_shot_simple<Math, kRanks, 1>(session, {0, 1}, in, out, algorithm::NoDelay{});
    }
  }

  void check_output(const Rank& rank, int step) {
    for (int i = 0; i < kMaxCount; ++i) {
      std::int32_t sum = 0;
      for (int source = 0; source < kRanks; ++source) sum += given(source, step, i);
      RL_ASSERT(rank.output[step][i] == (i < C::kStepList[step].count ? sum : -1));
    }
  }

  void check_record(int number) {
    const protocol::FaultRecord& record = ranks[number].record;
    const bool is_valid =
        Space::template load<exec::Order::acquire, exec::Scope::system>(ranks[number].valid) == 1;
    RL_ASSERT(is_valid);
    RL_ASSERT(record.rank == number && record.region == 7 && record.collective == 3 && record.time_ns > 0);
    RL_ASSERT(record.expected == record.epoch && record.epoch > 0);
    RL_ASSERT(record.peer >= -1 && record.peer < kRanks && record.peer != number);
    RL_ASSERT(record.peer == -1 || record.seen != record.expected);
    if (C::kExact) {
      RL_ASSERT(record.kind == static_cast<std::uint32_t>(C::kKind));
      RL_ASSERT(record.peer == C::kDeadRank);
      RL_ASSERT(record.epoch == static_cast<std::uint32_t>(C::kDeadStep) + 1);
      RL_ASSERT(record.seen == C::kSeen);
      RL_ASSERT(record.slot == 0);
    }
  }
};

}  // namespace nearlight::model
