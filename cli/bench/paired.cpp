#include "cli/bench/paired.hpp"

#include <algorithm>
#include <utility>

#include "cli/append.hpp"
#include "cli/bench/limits.hpp"
#include "cli/bench/nearlight_contender.hpp"
#include "cli/bench/without_limits.hpp"

namespace nearlight::bench {

namespace {

// The entries of one case: with what is measured, and without.
struct Pair {
  Measured* with;
  Measured* without;
};

std::vector<Pair> pairs_of(Paired paired, std::vector<Measured>& measured) {
  std::vector<Pair> pairs;
  for (std::size_t i = 0; i + 1 < measured.size(); ++i) {
    Measured &own = measured[i], &other = measured[i + 1];
    if (own.impl != cli::kOwnImpl || other.impl != impl_of(paired) || own.turn_p50_us.empty()) continue;
    pairs.push_back(paired == Paired::trace ? Pair{&other, &own} : Pair{&own, &other});
  }
  return pairs;
}

double p50_of(const Measured& entry) {
  auto summary = entry.samples.summary();
  return summary.ok() ? summary->p50_us : 0;
}

}  // namespace

const char* name_of(Paired paired) {
  switch (paired) {
    case Paired::none:
      return "none";
    case Paired::trace:
      return "trace";
    case Paired::deadline:
      return "deadline";
  }
  return "invalid";
}

std::optional<Paired> parse_paired(std::string_view text) {
  for (const Paired paired : {Paired::trace, Paired::deadline}) {
    if (text == name_of(paired)) return paired;
  }
  return std::nullopt;
}

const char* impl_of(Paired paired) {
  return paired == Paired::trace ? "nearlight_traced" : "nearlight_unbounded";
}

runtime::Options with_pair(runtime::Options options, Paired paired) {
  if (paired == Paired::trace) options.trace = true;
  return options;
}

std::vector<std::unique_ptr<Contender>> make_pair_of(Paired paired,
                                                     std::shared_ptr<runtime::Communicator> communicator,
                                                     runtime::CallOptions call,
                                                     std::optional<std::uint32_t> sm,
                                                     std::chrono::milliseconds timeout) {
  PairMember own, other{impl_of(paired), {}, paired == Paired::trace};
  runtime::CallOptions with = call;
  if (paired == Paired::trace) {
    call.untraced = true;
  } else {
    with.instead = &code_without_limits();
    // Both: what the watching costs is in both.
    own.ends_after = other.ends_after = limits_of(timeout).meeting;
  }
  std::vector<std::unique_ptr<Contender>> pair;
  pair.push_back(make_nearlight_contender(communicator, call, sm, false, own));
  pair.push_back(make_nearlight_contender(std::move(communicator), with, sm, false, other));
  return pair;
}

cli::Cost cost_of(const Measured& with, const Measured& without) {
  std::vector<double> percent;
  const std::size_t turns = std::min(with.turn_p50_us.size(), without.turn_p50_us.size());
  for (std::size_t i = 0; i < turns; ++i)
    percent.push_back((with.turn_p50_us[i] / without.turn_p50_us[i] - 1) * 100);
  std::sort(percent.begin(), percent.end());
  return {trace::nearest_rank(percent, 50), trace::nearest_rank(percent, 25),
          trace::nearest_rank(percent, 75)};
}

void set_costs(Paired paired, std::vector<Measured>& measured) {
  if (paired == Paired::none) return;
  for (const Pair& pair : pairs_of(paired, measured)) {
    Measured& other = paired == Paired::trace ? *pair.with : *pair.without;
    other.cost = cost_of(*pair.with, *pair.without);
  }
}

std::string cost_table(Paired paired, const std::vector<Measured>& measured) {
  std::vector<Measured> all = measured;
  const std::vector<Pair> pairs = pairs_of(paired, all);
  if (pairs.empty()) return "";
  std::string text;
  cli::append(text, "#\n# cost of %s: median over %zu turns of with / without - 1, and its quartiles\n",
              name_of(paired), pairs[0].with->turn_p50_us.size());
  cli::append(text, "# %10s  %9s %9s  %8s  %8s %8s\n", "size", "with", "without", "cost", "25 %", "75 %");
  cli::append(text, "# %10s  %9s %9s  %8s  %8s %8s\n", "(B)", "(us)", "(us)", "(%)", "(%)", "(%)");
  for (const Pair& pair : pairs) {
    const cli::Cost cost = cost_of(*pair.with, *pair.without);
    cli::append(text, "%12zu  %9.4f %9.4f  %+8.2f  %+8.2f %+8.2f\n", pair.with->what.bytes(),
                p50_of(*pair.with), p50_of(*pair.without), cost.percent, cost.low_percent, cost.high_percent);
  }
  return text;
}

}  // namespace nearlight::bench
