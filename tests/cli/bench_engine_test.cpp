// The engine between real CPU ranks, with contenders that go wrong on purpose.
#include "cli/bench/engine.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>
#include <mutex>
#include <thread>
#include <tuple>

#include "cli/bench/reference.hpp"
#include "tests/cli/bench_engine_scene.hpp"
#include "tests/support/ranks.hpp"

namespace nearlight::bench {
namespace {

using test::Kind;
using test::Problems;
using testing::HasSubstr;

// Each of the other collectives, in both variants, but for all_to_all.
std::vector<Case> cases_by_parts() {
  std::vector<Case> cases;
  for (const Collective collective : {Collective::all_gather, Collective::reduce_scatter,
                                      Collective::broadcast, Collective::reduce, Collective::all_to_all}) {
    // 1: rounded up to an element for each rank; 100: rounded down.
    for (const std::size_t count : {1u, 100u, 3000u})
      cases.push_back({count, DataType::f32, ReduceOp::sum, collective, 1});
  }
  return cases;
}

// What every rank must find: `wrong` elements in the variants for which it says so.
Look expect_wrong(std::function<bool(std::size_t wrong, bool in_place)> right, std::string words) {
  return [=](const Result<std::vector<Measured>>& measured, Problems& problems, int rank) {
    if (!measured.ok()) return problems.add("%s", measured.status().to_string().c_str());
    for (const Measured& entry : measured.value()) {
      if (!right(entry.wrong, entry.in_place))
        problems.add("%zu wrong, in place %d", entry.wrong, entry.in_place);
      if (rank == 0 && entry.wrong > 0 && entry.first_wrong.find(words) == std::string::npos) {
        problems.add("says '%s', not '%s'", entry.first_wrong.c_str(), words.c_str());
      }
    }
  };
}

TEST(Engine, ResultsAreLookedAtWhenTheContenderHasBroughtThem) {
  Scene scene;
  scene.plan = small_plan();
  scene.late = true;
  EXPECT_EQ(run(scene, expect_wrong([](std::size_t wrong, bool) { return wrong == 0; }, "")), "");
  scene.late = false;
  EXPECT_EQ(run(scene, expect_wrong([](std::size_t wrong, bool) { return wrong > 0; }, "")), "");
}

TEST(Engine, MeasuresTheOtherCollectives) {
  Scene scene;
  scene.nranks = 3;
  scene.plan = small_plan();
  scene.cases = cases_by_parts();
  EXPECT_EQ(run(scene,
                [](const Result<std::vector<Measured>>& measured, Problems& problems, int) {
                  if (!measured.ok()) return problems.add("%s", measured.status().to_string().c_str());
                  if (measured->size() != 27) return problems.add("%zu entries", measured->size());
                  for (const Measured& entry : *measured) {
                    if (entry.wrong != 0)
                      problems.add("%s: %s", name_of(entry.what.collective), entry.first_wrong.c_str());
                    const bool fits = !has_part_a_rank(entry.what.collective) || entry.what.count % 3 == 0;
                    if (!fits || entry.what.count == 0) problems.add("%zu elements", entry.what.count);
                  }
                }),
            "");
}

TEST(Engine, AWrongElementOfAnotherCollectiveIsCounted) {
  for (const Case& one : cases_by_parts()) {
    Scene scene;
    scene.nranks = 3;
    scene.rank = 1;  // the root, which has an output in each of them
    scene.plan = small_plan();
    scene.plan.in_place = false;
    scene.cases = {one};
    scene.meddle = [](const Operation& operation, std::size_t) {
      static_cast<float*>(operation.recv)[0] += 1.0f;
      return Status();
    };
    EXPECT_EQ(run(scene, expect_wrong([](std::size_t wrong, bool) { return wrong > 0; }, "")), "")
        << name_of(one.collective);
  }
}

TEST(Engine, MeasuresEveryCaseAndVariantOfAnHonestContender) {
  for (const Kind kind : {Kind::threads, Kind::processes}) {
    Scene scene;
    scene.kind = kind;
    scene.nranks = 3;
    scene.plan = small_plan();
    scene.cases = {{1, DataType::i32, ReduceOp::max},
                   {777, DataType::bf16, ReduceOp::sum},
                   {5000, DataType::f32, ReduceOp::sum}};
    scene.second = true;
    EXPECT_EQ(run(scene,
                  [](const Result<std::vector<Measured>>& measured, Problems& problems, int) {
                    if (!measured.ok()) return problems.add("%s", measured.status().to_string().c_str());
                    const std::vector<Measured>& all = measured.value();
                    if (all.size() != 12) return problems.add("%zu entries", all.size());
                    for (std::size_t i = 0; i < all.size(); ++i) {
                      const Measured& entry = all[i];
                      if (entry.impl != (i % 2 == 0 ? "first" : "second"))
                        problems.add("entry %zu is %s", i, entry.impl.c_str());
                      if (entry.in_place != (i % 4 >= 2))
                        problems.add("entry %zu: in place %d", i, entry.in_place);
                      if (entry.wrong != 0) problems.add("entry %zu: %s", i, entry.first_wrong.c_str());
                      if (entry.samples.size() != 20) problems.add("%zu samples", entry.samples.size());
                      for (const double us : entry.samples.values_us()) {
                        if (!(us > 0)) problems.add("a sample of %g us", us);
                      }
                    }
                  }),
              "");
  }
}

// Runs a rank alone with something done after each operation; its CPU time and the fastest sample.
std::pair<double, double> cpu_and_wall_of(Meddler::Meddle meddle) {
  Scene scene;
  scene.nranks = 1;
  scene.plan = small_plan();
  scene.meddle = std::move(meddle);
  std::pair<double, double> found{-1, -1};
  EXPECT_EQ(run(scene,
                [&found](const Result<std::vector<Measured>>& measured, Problems& problems, int) {
                  if (!measured.ok()) return problems.add("%s", measured.status().to_string().c_str());
                  const Measured& entry = measured.value().front();
                  if (!entry.cpu_us) return problems.add("no CPU time");
                  const auto samples = entry.samples.values_us();
                  found = {*entry.cpu_us, *std::min_element(samples.begin(), samples.end())};
                }),
            "");
  return found;
}

TEST(Engine, CpuTimeIsWhatTheThreadWorksNotWhatItSleeps) {
  const auto [busy, busy_wall] = cpu_and_wall_of([](const Operation&, std::size_t) {
    const std::uint64_t begin_ns = thread_cpu_ns();
    while (thread_cpu_ns() - begin_ns < 300'000) {
    }
    return Status();
  });
  EXPECT_GE(busy, 300);
  const auto [asleep, asleep_wall] = cpu_and_wall_of([](const Operation&, std::size_t) {
    std::this_thread::sleep_for(std::chrono::milliseconds(3));
    return Status();
  });
  EXPECT_GE(asleep_wall, 3000);
  EXPECT_GT(asleep, 0);
  EXPECT_LT(asleep, 1500);
}

TEST(Engine, CpuTimeIsTheBusiestRanks) {
  Scene scene;
  scene.plan = small_plan();
  scene.rank = 1;
  scene.meddle = [](const Operation&, std::size_t) {
    const std::uint64_t begin_ns = thread_cpu_ns();
    while (thread_cpu_ns() - begin_ns < 200'000) {
    }
    return Status();
  };
  EXPECT_EQ(run(scene,
                [](const Result<std::vector<Measured>>& measured, Problems& problems, int) {
                  if (!measured.ok()) return problems.add("%s", measured.status().to_string().c_str());
                  for (const Measured& entry : measured.value()) {
                    if (entry.cpu_us.value_or(0) < 200) problems.add("%g us", entry.cpu_us.value_or(0));
                  }
                }),
            "");
}

TEST(Engine, ReportsAFlippedBit) {
  Scene scene;
  scene.plan = small_plan();
  scene.meddle = [](const Operation& operation, std::size_t) {
    static_cast<char*>(operation.recv)[17] ^= 4;
    return Status();
  };
  // One element of the checks before and behind each of 4 turns; in place only before.
  EXPECT_EQ(
      run(scene, expect_wrong([](std::size_t wrong, bool in_place) { return wrong == (in_place ? 4 : 8); },
                              "rank 0: element 4 is")),
      "");
}

// What only the first calls take, loading and mapping, belongs to no sample, unless nothing is run
// beforehand.
TEST(Engine, SlowFirstCallsDoNotCount) {
  for (const std::size_t warmup : {std::size_t{0}, std::size_t{1}}) {
    Scene scene;
    scene.plan = small_plan();
    scene.plan.in_place = false;
    scene.plan.warmup = warmup;
    // Call 0 is checked by itself; a sample is 3 calls.
    scene.meddle = [](const Operation&, std::size_t call) {
      if (call >= 1 && call <= 3) std::this_thread::sleep_for(std::chrono::milliseconds(150));
      return Status();
    };
    const auto look = [&](const Result<std::vector<Measured>>& measured, Problems& problems, int) {
      if (!measured.ok()) return problems.add("%s", measured.status().to_string().c_str());
      const auto summary = measured.value()[0].samples.summary();
      if (!summary.ok()) return problems.add("%s", summary.status().to_string().c_str());
      const double slowest_us = summary->max_us;
      if ((slowest_us > 100'000) != (warmup == 0)) problems.add("slowest: %.0f us", slowest_us);
    };
    EXPECT_EQ(run(scene, look), "") << warmup;
  }
}

TEST(Engine, ReportsAWrongResultAmongTheTimedOperations) {
  Scene scene;
  scene.plan = small_plan();
  scene.plan.in_place = false;
  // The single operations that are checked first are right: call 0, then 3 of warm-up, then the timed ones.
  scene.meddle = [](const Operation& operation, std::size_t call) {
    if (call > 4) static_cast<char*>(operation.recv)[0] ^= 1;
    return Status();
  };
  EXPECT_EQ(run(scene, expect_wrong([](std::size_t wrong, bool) { return wrong > 0; }, "element 0 is")), "");
}

TEST(Engine, ReportsAContenderThatDoesNothingOnceItIsTimed) {
  Scene scene;
  scene.plan = small_plan();
  scene.plan.in_place = false;
  scene.rank = 1;
  scene.meddle = [](const Operation& operation, std::size_t call) {
    const std::span out(static_cast<std::byte*>(operation.recv), operation.count * size_of(operation.type));
    if (call > 0) fill_poison(out);
    return Status();
  };
  EXPECT_EQ(run(scene, expect_wrong([](std::size_t wrong, bool) { return wrong >= 100; }, "")), "");
}

TEST(Engine, ReportsBytesWrittenBeforeAndBehindTheOutput) {
  for (const std::ptrdiff_t at : {std::ptrdiff_t{-1}, std::ptrdiff_t{400}}) {
    Scene scene;
    scene.plan = small_plan();
    scene.meddle = [at](const Operation& operation, std::size_t) {
      static_cast<char*>(operation.recv)[at] = 0;
      return Status();
    };
    EXPECT_EQ(
        run(scene, expect_wrong([](std::size_t wrong, bool in_place) { return wrong == (in_place ? 4 : 8); },
                                at < 0 ? "bytes before the output" : "bytes behind the output")),
        "");
  }
}

TEST(Engine, ReportsAChangedInput) {
  Scene scene;
  scene.plan = small_plan();
  scene.plan.in_place = false;
  scene.meddle = [](const Operation& operation, std::size_t) {
    static_cast<char*>(const_cast<void*>(operation.send))[8] ^= 1;
    return Status();
  };
  EXPECT_EQ(run(scene, expect_wrong([](std::size_t wrong, bool) { return wrong > 0; }, "")), "");
}

TEST(Engine, DoesNotBlameTheHonestOneBesideIt) {
  Scene scene;
  scene.plan = small_plan();
  scene.second = true;
  scene.meddle = [](const Operation& operation, std::size_t) {
    static_cast<char*>(operation.recv)[0] ^= 1;
    return Status();
  };
  EXPECT_EQ(run(scene,
                [](const Result<std::vector<Measured>>& measured, Problems& problems, int) {
                  if (!measured.ok()) return problems.add("%s", measured.status().to_string().c_str());
                  for (const Measured& entry : measured.value()) {
                    if ((entry.wrong > 0) != (entry.impl == "second")) {
                      problems.add("%s: %zu wrong", entry.impl.c_str(), entry.wrong);
                    }
                  }
                }),
            "");
}

TEST(Engine, AFailureOfOneRankEndsAll) {
  for (const Kind kind : {Kind::threads, Kind::processes}) {
    Scene scene;
    scene.kind = kind;
    scene.nranks = 3;
    scene.plan = small_plan();
    scene.rank = 1;
    scene.meddle = [](const Operation&, std::size_t call) {
      return call == 30 ? failure(Code::internal_error, "planted") : Status();
    };
    EXPECT_EQ(run(scene,
                  [](const Result<std::vector<Measured>>& measured, Problems& problems, int rank) {
                    if (measured.ok()) return problems.add("no failure");
                    if (rank == 1 && measured.status().text().find("planted") == std::string::npos) {
                      problems.add("rank 1 says: %s", measured.status().to_string().c_str());
                    }
                  }),
              "");
  }
}

TEST(Engine, TwoJobsWorkAtTheSameTime) {
  for (const Kind kind : {Kind::threads, Kind::processes}) {
    Scene scene;
    scene.kind = kind;
    scene.plan = small_plan();
    scene.jobs = true;
    scene.cases = {{100, DataType::f32, ReduceOp::sum}, {3000, DataType::i32, ReduceOp::max}};
    std::atomic<std::size_t> calls{0}, elsewhere{0};
    const std::thread::id caller = std::this_thread::get_id();
    scene.meddle = [&](const Operation&, std::size_t) {
      ++calls;
      if (std::this_thread::get_id() != caller) ++elsewhere;
      return Status();
    };
    EXPECT_EQ(run(scene,
                  [&](const Result<std::vector<Measured>>& measured, Problems& problems, int rank) {
                    if (!measured.ok()) return problems.add("%s", measured.status().to_string().c_str());
                    for (const Measured& entry : measured.value()) {
                      if (entry.jobs != 2) problems.add("%d jobs", entry.jobs);
                      if (entry.wrong != 0) problems.add("%s", entry.first_wrong.c_str());
                      if (entry.samples.size() != 20) problems.add("%zu samples", entry.samples.size());
                    }
                    // 2 sizes in 2 variants: 20 samples and 4 of warm-up of 3 operations, twice as many
                    // beside them, and 4 single ones that are checked.
                    const std::size_t expected = 2 * 2 * (2 * 24 * 3 + 4);
                    if (rank == 0 && calls != expected) problems.add("%zu calls", calls.load());
                    if (rank == 0 && elsewhere < 2 * 2 * 2 * 24 * 3)
                      problems.add("in the first job's thread");
                  }),
              "");
  }
}

TEST(Engine, TheSecondJobsResultsAreChecked) {
  Scene scene;
  scene.plan = small_plan();
  scene.jobs = true;
  scene.meddle = [](const Operation& operation, std::size_t) {
    static_cast<char*>(operation.recv)[17] ^= 4;
    return Status();
  };
  EXPECT_EQ(
      run(scene, expect_wrong([](std::size_t wrong, bool in_place) { return wrong == (in_place ? 4 : 8); },
                              "rank 0: element 4 is")),
      "");
}

TEST(Engine, AFailureOfTheSecondJobEndsAll) {
  for (const Kind kind : {Kind::threads, Kind::processes}) {
    Scene scene;
    scene.kind = kind;
    scene.plan = small_plan();
    scene.jobs = true;
    scene.rank = 1;
    scene.meddle = [](const Operation&, std::size_t call) {
      return call == 30 ? failure(Code::internal_error, "planted") : Status();
    };
    EXPECT_EQ(run(scene,
                  [](const Result<std::vector<Measured>>& measured, Problems& problems, int rank) {
                    if (measured.ok()) return problems.add("no failure");
                    if (rank == 1 && measured.status().text().find("planted") == std::string::npos) {
                      problems.add("rank 1 says: %s", measured.status().to_string().c_str());
                    }
                  }),
              "");
  }
}

// The least sample and the median skew, microseconds; every sample has a start of its own.
std::pair<double, double> least_and_skew(Scene scene) {
  scene.plan.samples = scene.plan.rounds = 20;
  scene.plan.warmup = 1;
  scene.plan.chain = 1;
  scene.plan.in_place = false;
  std::pair<double, double> found{-1, -1};
  EXPECT_EQ(run(scene,
                [&found](const Result<std::vector<Measured>>& measured, Problems& problems, int rank) {
                  if (!measured.ok()) return problems.add("%s", measured.status().to_string().c_str());
                  const Measured& entry = measured.value().front();
                  if (entry.skew.size() != entry.samples.size())
                    problems.add("%zu starts", entry.skew.size());
                  const auto summary = entry.samples.summary(), skew = entry.skew.summary();
                  if (!summary.ok() || !skew.ok()) return problems.add("no summary");
                  if (rank == 0) found = {summary->min_us, skew->p50_us};
                }),
            "");
  return found;
}

// Median and maximum would be at the mercy of a busy machine; that a rank is waited for is in every sample.
TEST(Engine, ARankThatComesLateIsSkewAndNotLatency) {
  for (const int late_us : {50, 250, 1000}) {
    Scene scene;
    scene.plan.late = std::chrono::microseconds(late_us);
    auto [least_us, skew_us] = least_and_skew(scene);
    // Where the ranks have no processor each, the first one may come later still.
    for (int again = 0; again < 5 && (skew_us < 0.9 * late_us || least_us > 0.5 * late_us); ++again) {
      std::tie(least_us, skew_us) = least_and_skew(scene);
    }
    EXPECT_GE(skew_us, 0.9 * late_us);
    EXPECT_LT(least_us, 0.5 * late_us) << late_us;
  }
  // The same within the operation is latency and no skew.
  Scene scene;
  scene.rank = 1;
  scene.meddle = [](const Operation&, std::size_t) {
    const std::uint64_t due_ns = now_ns() + 1'000'000;
    while (now_ns() < due_ns) {
    }
    return Status();
  };
  EXPECT_GE(least_and_skew(scene).first, 1000);
}

TEST(Engine, KeepsToItsBudget) {
  Scene scene;
  scene.plan = small_plan();
  scene.plan.samples = 1'000'000;
  scene.plan.rounds = 5;
  scene.plan.chain = 1;
  scene.plan.in_place = false;
  scene.plan.budget = std::chrono::milliseconds(300);
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(run(scene,
                [](const Result<std::vector<Measured>>& measured, Problems& problems, int) {
                  if (!measured.ok()) return problems.add("%s", measured.status().to_string().c_str());
                  const std::size_t samples = measured.value()[0].samples.size();
                  if (samples < 14 || samples >= 1'000'000) problems.add("%zu samples", samples);
                }),
            "");
  // A safety net for a busy machine: without the budget it would take far longer.
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(30));
}

TEST(Plan, OneTurnHasRoomForItsSamples) {
  Plan plan;
  plan.samples = 10'000;
  plan.rounds = 3;
  EXPECT_EQ(samples_per_turn(plan), 4995u);  // what is left after a pilot, in two turns
  plan.samples = 2;
  plan.warmup = 50;
  EXPECT_EQ(samples_per_turn(plan), 50u);
}

TEST(HostPlace, KnowsEagerOnly) {
  const auto place = make_host_place();
  Meddler none(nullptr, "none", {});
  for (const cli::Mode mode : {cli::Mode::kernel, cli::Mode::graph}) {
    EXPECT_EQ(place->prepare({none, {}}, nullptr, mode, 1).status().code(), Code::unsupported);
  }
}

}  // namespace
}  // namespace nearlight::bench
