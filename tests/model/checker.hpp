// Running one scenario under the checker and saying what it found.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <ostream>
#include <string>

#include <gtest/gtest.h>

#include "exec/model_space.hpp"  // last

namespace nearlight::model {

// How executions are chosen. `full` and `bounded` visit all there are: every interleaving, or every one with
// at most `preemptions` switches away from a thread that could go on; both let a load see the newest store or
// the one before. `random` draws executions; there a load may see one store more back.
struct Search {
  rl::scheduler_type_e kind;
  std::uint64_t executions = 0;  // random only
  unsigned preemptions = 0;      // bounded only

  static Search full() { return {rl::sched_full}; }
  static Search bounded(unsigned preemptions) { return {rl::sched_bound, 0, preemptions}; }
  static Search random(std::uint64_t executions) { return {rl::sched_random, executions}; }
};

// The slow tier (NEARLIGHT_MODEL_TIER=slow) draws more.
inline bool slow_tier() {
  const char* tier = std::getenv("NEARLIGHT_MODEL_TIER");
  return tier != nullptr && std::strcmp(tier, "slow") == 0;
}

struct Finding {
  rl::test_result_e kind;
  std::uint64_t executions;
  std::string history;  // of the failing execution
};

inline std::ostream& operator<<(std::ostream& stream, const Finding& finding) {
  constexpr std::size_t kShown = 20'000;
  stream << rl::test_result_str(finding.kind) << " after " << finding.executions << " executions\n";
  if (finding.history.size() <= kShown) return stream << finding.history;
  return stream << finding.history.substr(0, kShown / 2) << "\n[...]\n"
                << finding.history.substr(finding.history.size() - kShown / 2);
}

template <class Scenario>
Finding explore(const Search& search) {
  rl::ostringstream text;  // its memory is not the checker's to count
  rl::test_params params;
  params.search_type = search.kind;
  params.iteration_count = search.executions;
  params.context_bound = search.preemptions;
  params.execution_depth_limit = Scenario::kStepLimit;
  params.output_stream = &text;
  params.progress_stream = &text;
  rl::simulate<Scenario>(params);
  Finding finding{params.test_result, params.stop_iteration, {}};
  if (finding.kind != rl::test_result_success) finding.history = text.str().c_str();
  return finding;
}

// The scenario must hold in every execution visited.
template <class Scenario>
void expect_holds(const Search& search) {
  const Finding finding = explore<Scenario>(search);
  EXPECT_EQ(finding.kind, rl::test_result_success) << finding;
  ::testing::Test::RecordProperty("executions", std::to_string(finding.executions));
}

template <class Scenario>
void expect_holds_at_random(std::uint64_t quick, std::uint64_t slow) {
  expect_holds<Scenario>(Search::random(slow_tier() ? slow : quick));
}

// The mutant must be found, and for the expected reason.
template <class Scenario>
void expect_found(rl::test_result_e kind, const Search& search) {
  const Finding finding = explore<Scenario>(search);
  EXPECT_EQ(finding.kind, kind) << finding;
  ::testing::Test::RecordProperty("executions", std::to_string(finding.executions));
}

}  // namespace nearlight::model
