// What a part of the library costs: the same calls with and without it, on one communicator, so that both
// have the same places in memory, in turns.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/bench/contender.hpp"
#include "cli/bench/engine.hpp"
#include "cli/results.hpp"
#include "runtime/communicator.hpp"

namespace nearlight::bench {

// trace: tracing, against the kernels without it. deadline: time limit, abort word and fault record of a
// wait, against code that has none of them.
enum class Paired { none, trace, deadline };
const char* name_of(Paired paired);
std::optional<Paired> parse_paired(std::string_view text);
// The one beside "nearlight" in tables and result files.
const char* impl_of(Paired paired);

// nearlight as it is, and the other one. `communicator` was made with with_pair(). `timeout`: of one wait
// inside an operation.
std::vector<std::unique_ptr<Contender>> make_pair_of(Paired paired,
                                                     std::shared_ptr<runtime::Communicator> communicator,
                                                     runtime::CallOptions call,
                                                     std::optional<std::uint32_t> sm,
                                                     std::chrono::milliseconds timeout);
runtime::Options with_pair(runtime::Options options, Paired paired);

// Of each turn the two medians are taken: theirs is the cost, in percent of the time without. The median over
// the turns, and the quartiles. Both have as many turns, one at least.
cli::Cost cost_of(const Measured& with, const Measured& without);
// The cost of each case; the entry of impl_of(paired) gets it.
void set_costs(Paired paired, std::vector<Measured>& measured);
// A line a case.
std::string cost_table(Paired paired, const std::vector<Measured>& measured);

}  // namespace nearlight::bench
