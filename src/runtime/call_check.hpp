// Check mode: the ranks tell each other what they are about to run, and run it only when all mean the same.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/exchange.hpp"
#include "base/status.hpp"
#include "base/types.hpp"
#include "runtime/collective.hpp"

namespace nearlight::runtime {

// What must be the same on all ranks.
struct Call {
  Collective collective;
  std::size_t count;
  DataType type;
  ReduceOp op;
};

// Collective. `number`: how many calls of this communicator were compared before. A difference is
// Code::invalid_usage on every rank, and names the first field that differs with both values and the rank;
// the exchange stays usable. Any other failure is the exchange's: a rank that does not come is named.
Status check_calls_agree(Exchange& exchange, const Call& call, std::uint64_t number, Deadline deadline);

}  // namespace nearlight::runtime
