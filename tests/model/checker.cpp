#include "tests/model/checker.hpp"

#include <cstdlib>
#include <cstring>

namespace nearlight::model {
namespace {

// The checker wants a type; this one holds whatever scenario is being explored.
const Setup* explored = nullptr;

template <int threads>
struct Suite : rl::test_suite<Suite<threads>, threads> {
  alignas(16) std::byte storage[Setup::kMaxBytes];
  Scenario* scenario;

  Suite() : scenario(explored->make(storage)) {}
  ~Suite() { scenario->~Scenario(); }
  void before() { scenario->before(); }
  void thread(unsigned index) { scenario->thread(index); }
  void after() { scenario->after(); }
};

template <int threads, template <rl::thread_id_t> class Scheduler>
Finding run(rl::test_params& params, rl::ostringstream& text) {
  using Tested = Suite<threads>;
  rl::ostringstream state;
  const rl::test_result_e kind = rl::run_test<Tested, Scheduler<threads>>(params, state, false);
  Finding finding{kind, params.stop_iteration, {}};
  if (kind == rl::test_result_success) return finding;
  // The failing execution once more, written down.
  text.str("");
  params.initial_state = state.str();
  params.collect_history = true;
  rl::ostringstream unused;
  const rl::test_result_e again = rl::run_test<Tested, Scheduler<threads>>(params, unused, true);
  EXPECT_EQ(again, kind) << "the scenario depends on something beside the checker's choices";
  const std::string history(text.str().c_str());
  finding.history = history.substr(0, history.find("\nthread 0:"));
  return finding;
}

void record(const Finding& finding) {
  ::testing::Test::RecordProperty("executions", std::to_string(finding.executions));
}

}  // namespace

bool slow_tier() {
  const char* tier = std::getenv("NEARLIGHT_MODEL_TIER");
  return tier != nullptr && std::strcmp(tier, "slow") == 0;
}

std::ostream& operator<<(std::ostream& stream, const Finding& finding) {
  constexpr std::size_t kShown = 20'000;
  stream << rl::test_result_str(finding.kind) << " after " << finding.executions << " executions\n";
  if (finding.history.size() <= kShown) return stream << finding.history;
  return stream << finding.history.substr(0, kShown / 2) << "\n[...]\n"
                << finding.history.substr(finding.history.size() - kShown / 2);
}

Finding explore(const Setup& setup, const Search& search) {
  explored = &setup;
  rl::ostringstream text;  // its memory is not the checker's to count
  rl::test_params params;
  params.execution_depth_limit = setup.step_limit;
  params.output_stream = &text;
  params.progress_stream = &text;
  switch (search.kind) {
    case Search::Kind::full:
      params.search_type = rl::sched_full;
      if (setup.threads == 2) return run<2, rl::full_search_scheduler>(params, text);
      break;
    case Search::Kind::bounded:
      params.search_type = rl::sched_bound;
      params.context_bound = search.preemptions;
      if (setup.threads == 2) return run<2, rl::context_bound_scheduler>(params, text);
      if (setup.threads == 3) return run<3, rl::context_bound_scheduler>(params, text);
      break;
    case Search::Kind::random:
      params.search_type = rl::sched_random;
      params.iteration_count = search.executions;
      if (setup.threads == 2) return run<2, rl::random_scheduler>(params, text);
      if (setup.threads == 3) return run<3, rl::random_scheduler>(params, text);
      if (setup.threads == 4) return run<4, rl::random_scheduler>(params, text);
      if (setup.threads == 5) return run<5, rl::random_scheduler>(params, text);
      if (setup.threads == 6) return run<6, rl::random_scheduler>(params, text);
      break;
  }
  ADD_FAILURE() << "this search is not compiled for " << setup.threads << " threads";
  return {rl::test_result_inconsistent_test_suite, 0, {}};
}

void expect_holds(const Setup& setup, const Search& search) {
  const Finding finding = explore(setup, search);
  EXPECT_EQ(finding.kind, rl::test_result_success) << finding;
  record(finding);
}

void expect_found(const Setup& setup, rl::test_result_e kind, std::uint64_t executions) {
  const Finding finding = explore(setup, Search::random(executions));
  EXPECT_EQ(finding.kind, kind) << finding;
  record(finding);
}

}  // namespace nearlight::model
