// Running one scenario under the checker and saying what it found.
#pragma once

#include <cstddef>
#include <cstdint>
#include <new>
#include <ostream>
#include <string>

#include <gtest/gtest.h>

#include "exec/model_space.hpp"  // last

namespace nearlight::model {

// What some threads do. Made anew for every execution; the atomics and variables it holds are the checker's.
class Scenario {
 public:
  virtual ~Scenario() = default;
  virtual void before() {}
  virtual void thread(unsigned index) = 0;
  virtual void after() {}
};

// The checker is compiled once for each number of threads (checker.cpp), not once for each scenario.
struct Setup {
  static constexpr std::size_t kMaxBytes = std::size_t{1} << 17;

  int threads;
  unsigned step_limit;               // longer executions count as stuck
  Scenario* (*make)(void* storage);  // in kMaxBytes
};

template <class S>
Setup setup_of() {
  static_assert(sizeof(S) <= Setup::kMaxBytes);
  return {S::kThreads, S::kStepLimit, [](void* storage) -> Scenario* { return ::new (storage) S; }};
}

// How executions are chosen. `full` and `bounded` visit all there are: every interleaving, or every one with
// at most `preemptions` switches away from a thread that could go on; both let a load see the newest store or
// the one before. `random` draws executions; there a load may see one store more back. Its seeds are the
// numbers of the executions, so what it finds it finds again.
struct Search {
  enum class Kind { full, bounded, random };
  Kind kind;
  std::uint64_t executions = 0;  // random only
  unsigned preemptions = 0;      // bounded only

  static Search full() { return {Kind::full}; }
  static Search bounded(unsigned preemptions) { return {Kind::bounded, 0, preemptions}; }
  static Search random(std::uint64_t executions) { return {Kind::random, executions}; }
};

// The slow tier (NEARLIGHT_MODEL_TIER=slow) looks at more.
bool slow_tier();

struct Finding {
  rl::test_result_e kind;
  std::uint64_t executions;
  std::string history;  // of the failing execution
};
std::ostream& operator<<(std::ostream& stream, const Finding& finding);

Finding explore(const Setup& setup, const Search& search);

// The scenario must hold in every execution visited.
void expect_holds(const Setup& setup, const Search& search);
// The mutant must be found at random, and for the expected reason.
void expect_found(const Setup& setup, rl::test_result_e kind, std::uint64_t executions);

template <class S>
void expect_holds(const Search& search) {
  expect_holds(setup_of<S>(), search);
}
template <class S>
void expect_holds_at_random(std::uint64_t quick, std::uint64_t slow) {
  expect_holds(setup_of<S>(), Search::random(slow_tier() ? slow : quick));
}
template <class S>
void expect_found(rl::test_result_e kind, std::uint64_t executions) {
  expect_found(setup_of<S>(), kind, executions);
}

}  // namespace nearlight::model
