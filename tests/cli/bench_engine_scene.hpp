// The engine between real CPU ranks, of which one has a contender that goes wrong on purpose.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cli/bench/engine.hpp"
#include "cli/bench/nearlight_contender.hpp"
#include "runtime/create.hpp"
#include "tests/support/ranks.hpp"

namespace nearlight::bench {

// Does the real thing, then what it is told to; `call` counts from 0.
class Meddler final : public Contender {
 public:
  using Meddle = std::function<Status(const Operation&, std::size_t call)>;
  Meddler(std::unique_ptr<Contender> inner, const char* impl, Meddle after)
      : inner_(std::move(inner)), impl_(impl), after_(std::move(after)) {}

  const char* impl() const override { return impl_; }
  Status all_reduce(const Operation& operation, runtime::Stream stream) override {
    NL_TRY(inner_->all_reduce(operation, stream));
    return after_ ? after_(operation, calls_++) : Status();
  }
  Status by_parts(const Operation& operation, runtime::Stream stream) override {
    NL_TRY(inner_->by_parts(operation, stream));
    return after_ ? after_(operation, calls_++) : Status();
  }
  Status failed() const override { return inner_->failed(); }
  void abandon() override { inner_->abandon(); }
  Result<Choice> choice(std::size_t count, DataType type, ReduceOp op, cli::Mode mode) const override {
    return inner_->choice(count, type, op, mode);
  }
  Result<Choice> choice_of(const Operation& operation, cli::Mode mode) const override {
    return inner_->choice_of(operation, mode);
  }
  int roundings() const override { return inner_->roundings(); }

 private:
  std::unique_ptr<Contender> inner_;
  const char* impl_;
  Meddle after_;
  std::size_t calls_ = 0;
};

// Its results are elsewhere until it is asked to bring them.
class Late final : public Contender {
 public:
  Late(std::unique_ptr<Contender> inner, bool brings) : inner_(std::move(inner)), brings_(brings) {}
  const char* impl() const override { return "late"; }
  Status all_reduce(const Operation& operation, runtime::Stream stream) override {
    kept_.resize(operation.count * size_of(operation.type));
    Operation elsewhere = operation;
    elsewhere.recv = kept_.data();
    return inner_->all_reduce(elsewhere, stream);
  }
  Status finish(const Operation& operation, runtime::Stream) override {
    if (brings_) std::memcpy(operation.recv, kept_.data(), kept_.size());
    return {};
  }
  Result<Choice> choice(std::size_t count, DataType type, ReduceOp op, cli::Mode mode) const override {
    return inner_->choice(count, type, op, mode);
  }
  int roundings() const override { return inner_->roundings(); }

 private:
  std::unique_ptr<Contender> inner_;
  bool brings_;
  std::vector<char> kept_;
};

struct Scene {
  test::Kind kind = test::Kind::threads;
  int nranks = 2;
  Plan plan;
  std::vector<Case> cases = {{100, DataType::f32, ReduceOp::sum}};
  Meddler::Meddle meddle;  // of the one rank
  int rank = 0;
  bool second = false;  // beside an honest one
  // With a second job, which does what it is told to on the one rank; the first one is honest then.
  bool jobs = false;
  std::optional<bool> late;  // a Late alone, which brings its results or does not
};

using Look = std::function<void(const Result<std::vector<Measured>>&, test::Problems&, int rank)>;

// Runs the engine on every rank; `look` sees each rank's result. Returns the ranks' complaints.
inline std::string run(const Scene& scene, const Look& look) {
  return test::run_ranks(scene.kind, scene.nranks, [&](Exchange& exchange, test::Problems& problems) {
    const auto outcome = [&]() -> Result<std::vector<Measured>> {
      NL_TRY_ASSIGN(const auto meeting,
                    Meeting::create(exchange, samples_per_turn(scene.plan), std::chrono::seconds(60)));
      const auto place = make_host_place();
      std::vector<std::unique_ptr<Contender>> contenders;
      for (int i = 0; i < (scene.second ? 2 : 1); ++i) {
        NL_TRY_ASSIGN(auto communicator, runtime::create_host(exchange, test::patient()));
        if (scene.late) {
          contenders.push_back(
              std::make_unique<Late>(make_nearlight_contender(std::move(communicator), {}), *scene.late));
          continue;
        }
        const bool honest = scene.jobs || exchange.rank() != scene.rank || (scene.second && i == 0);
        contenders.push_back(std::make_unique<Meddler>(make_nearlight_contender(std::move(communicator), {}),
                                                       i == 0 ? "first" : "second",
                                                       honest ? Meddler::Meddle() : scene.meddle));
      }
      std::vector<Contender*> views, beside;
      for (const auto& contender : contenders) views.push_back(contender.get());
      std::unique_ptr<Contender> job;
      if (scene.jobs) {
        NL_TRY_ASSIGN(auto communicator, runtime::create_host(exchange, test::patient()));
        job = std::make_unique<Meddler>(make_nearlight_contender(std::move(communicator), {}), "job",
                                        exchange.rank() == scene.rank ? scene.meddle : Meddler::Meddle());
        beside.push_back(job.get());
      }
      Engine engine(*meeting, *place, views, beside);
      std::size_t largest = 0;
      for (const Case& what : scene.cases) largest = std::max(largest, what.bytes());
      NL_TRY(engine.reserve(largest));
      auto measured = engine.measure(scene.cases, scene.plan);
      // As the commands do: nobody takes its communicator down before all are through.
      if (measured.ok()) NL_TRY(meeting->barrier());
      return measured;
    }();
    look(outcome, problems, exchange.rank());
  });
}

inline Plan small_plan() {
  Plan plan;
  plan.samples = 20;
  plan.rounds = 4;
  plan.warmup = 1;
  plan.chain = 3;
  return plan;
}

}  // namespace nearlight::bench
