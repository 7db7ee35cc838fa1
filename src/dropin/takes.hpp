// Which of NCCL's functions nearlight stands in for, and by what.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/status.hpp"
#include "dropin/operation.hpp"
#include "runtime/communicator.hpp"

namespace nearlight::dropin {

// A bit a function, 1 << static_cast<int>(function).
using Takes = std::uint32_t;

// "all_reduce,all_gather", or "all": what NEARLIGHT_DROPIN_TAKES takes. Code::invalid_argument names the word
// that is none, and those there are.
Result<Takes> parse_takes(std::string_view text);
// All that there is code for.
Takes all_takes();

// See Companion::decide().
Verdict decide(const runtime::Communicator& communicator, Takes takes, const Operation& operation);
// An operation that was decided to be taken.
Status run(runtime::Communicator& communicator, const Operation& operation);
// Messages that were, at once, on the stream of the first.
Status run_together(runtime::Communicator& communicator, std::span<const Operation> messages);

}  // namespace nearlight::dropin
