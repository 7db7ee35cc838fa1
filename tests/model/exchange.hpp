// The scenario most checks share: ranks of some lanes run a series of AllReduces with the product's own code,
// and every result must be the sum of what all ranks gave to that call.
#pragma once

#include <cstdint>
#include <limits>

#include "algorithm/kinds.hpp"
#include "algorithm/one_shot.hpp"
#include "algorithm/one_shot_ll128.hpp"
#include "algorithm/one_shot_sentinel.hpp"
#include "algorithm/two_shot.hpp"
#include "algorithm/two_shot_atomic.hpp"
#include "tests/model/checker.hpp"

namespace nearlight::model {

using algorithm::Protocol;

struct Step {
  Protocol protocol;
  int count;                  // elements of 4 bytes: two a pack, four a cell
  bool same_session = false;  // goes on in the session of the step before
  bool two_shot = false;      // not with simple; with ll128 the one that adds
};

// Integers that are never the sentinel stand for floats.
struct NothingToRewrite {
  using Cell = std::uint32_t;
  static Cell to_send(Cell cell) { return cell; }
};

// Sums of integers that stand for floats.
struct IntegerSum {
  static constexpr exec::Adds kAdds = exec::Adds::i32;
  exec::Pack close(exec::Pack sum, int) const { return sum; }
};

// What a case may change. A mutant changes one thing.
template <std::uint32_t last_epoch = 0xffffffffu>
struct Case {
  using Space = exec::ModelSpaceWith<last_epoch>;
  using Coop = exec::ModelCoop;
  using Rewrite = NothingToRewrite;
  template <class Memory>
  using View = exec::ModelRegion<Space, Memory>;

  static constexpr int kRanks = 2, kLanes = 1;
  // Lanes of the last rank, unless 0: fewer threads in all, so a deeper search.
  static constexpr int kLanesOfLastRank = 0;
  static constexpr int kSlots = 1, kCells = 1, kPackets = 1, kWide = 0;
  static constexpr int kHeld = 0;    // packs a thread keeps in registers: the GPU's variant when not 0
  static constexpr int kAtOnce = 0;  // packets of a thread under way: the variant for whole runs when not 0
  static constexpr int kSlotsMoved = 0;  // every other session begins at this slot
  // Far from the wrap, whose fences would do for others that are missing.
  static constexpr std::uint32_t kInitialEpoch = last_epoch == 0xffffffffu ? 100 : 0;
  static constexpr unsigned kStepLimit = 20'000;  // longer executions count as stuck
  // What lies between two sessions beside the meeting of the lanes. The boundary of two kernels is at least a
  // fence; only where the protocols alternate, or with packets, does the outcome depend on it.
  static void fence_between_sessions() {}
};

template <class C>
inline constexpr int kThreadsOf = C::kRanks* C::kLanes -
                                  (C::kLanesOfLastRank == 0 ? 0 : C::kLanes - C::kLanesOfLastRank);

template <class C>
struct Exchange : Scenario {
  static constexpr int kThreads = kThreadsOf<C>;
  static constexpr unsigned kStepLimit = C::kStepLimit;
  static constexpr int kRanks = C::kRanks, kLanes = C::kLanes;
  static constexpr int kSteps = static_cast<int>(sizeof(C::kStepList) / sizeof(Step));
  static constexpr int kMaxCount = 16;
  using Space = typename C::Space;
  using Memory = exec::ModelMemory<Space, kRanks, C::kSlots, C::kCells, C::kPackets, C::kWide>;
  using View = typename C::template View<Memory>;
  using Coop = typename C::Coop;

  // The view of a call whose slots begin elsewhere.
  struct Moved : View {
    Moved(const View& view, int slots) : View(view), first(static_cast<std::uint32_t>(slots)) {}
    auto& line(int peer, int bank, int source, std::uint32_t slot) const {
      return View::line(peer, bank, source, first + slot);
    }
    std::uint32_t slots() const { return View::slots() - first; }
    std::uint32_t first;
  };

  Memory memory;
  protocol::RegionState<Space> state[kRanks];
  exec::ModelBarrier group[kRanks];
  exec::ModelBarrier
      between_sessions[kRanks];  // what the boundary of two kernels does for the lanes of a rank
  std::int32_t input[kRanks][kSteps][kMaxCount];
  std::int32_t output[kRanks][kSteps][kMaxCount];

  static std::int32_t given(int rank, int step, int i) { return (rank + 1) * 10'000 + (step + 1) * 100 + i; }

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
    const Moved view(View(memory, rank), step % 2 * C::kSlotsMoved);
    protocol::Session session(view, Coop{lane, lanes, &group[rank]}, state[rank], control, 0, 0);
    do {
      run_step(session, rank, step);
      ++step;
    } while (step < kSteps && C::kStepList[step].same_session);
    session.close();
  }

  template <class SessionT>
  void run_step(SessionT& session, int rank, int step) {
    using Math = algorithm::PackMath<Space, std::int32_t, ReduceOp::sum>;
    const auto count = static_cast<std::uint64_t>(C::kStepList[step].count);
    const algorithm::Buffer<Space, std::int32_t> in(input[rank][step], count), out(output[rank][step], count);
    if (C::kStepList[step].two_shot) {
      run_two_shot(session, C::kStepList[step].protocol, in, out);
    } else if (C::kStepList[step].protocol == Protocol::ll) {
      algorithm::one_shot_ll<Math, kRanks, C::kHeld>(session, {0, 1}, in, out, algorithm::NoDelay{});
    } else if (C::kStepList[step].protocol == Protocol::sentinel) {
      if constexpr (C::kAtOnce != 0) {
        return algorithm::one_shot_sentinel_whole<Math, typename C::Rewrite, kRanks, C::kAtOnce>(
            session, {0, 1}, 1, in, out, algorithm::NoDelay{});
      }
      algorithm::one_shot_sentinel<Math, typename C::Rewrite, kRanks>(session, {0, 1}, 1, in, out,
                                                                      algorithm::NoDelay{});
    } else if (C::kStepList[step].protocol == Protocol::ll128) {
      algorithm::one_shot_ll128<Math, kRanks>(session, {0, 1}, in, out, algorithm::NoDelay{});
    } else {
      algorithm::one_shot_simple<Math, kRanks, 1>(session, {0, 1}, in, out, algorithm::NoDelay{});
    }
  }

  template <class SessionT, class Bufs>
  void run_two_shot(SessionT& session, Protocol protocol, const Bufs& in, const Bufs& out) {
    constexpr algorithm::PackMath<Space, std::int32_t, ReduceOp::sum> math{};
    if (protocol == Protocol::ll128) {
      algorithm::two_shot_atomic(session, {0, 1}, in, out, algorithm::NoDelay{}, IntegerSum{});
    } else if (protocol == Protocol::ll) {
      algorithm::two_shot<algorithm::LlUnits, kRanks>(session, {0, 1}, in, out, algorithm::NoDelay{}, math);
    } else {
      algorithm::two_shot<algorithm::SentinelUnits<typename C::Rewrite>, kRanks>(session, {0, 1}, in, out,
                                                                                 algorithm::NoDelay{}, math);
    }
  }

  void check(int rank, int step) {
    for (int i = 0; i < kMaxCount; ++i) {
      std::int32_t sum = 0;
      for (int source = 0; source < kRanks; ++source) sum += given(source, step, i);
      RL_ASSERT(output[rank][step][i] == (i < C::kStepList[step].count ? sum : -1));
    }
  }
};

}  // namespace nearlight::model
