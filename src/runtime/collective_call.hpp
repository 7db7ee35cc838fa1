// A call of a collective that goes by parts: what the caller gives, what is wrong with it, and who gets what.
#pragma once

#include <cstddef>
#include <cstdint>

#include "algorithm/parts.hpp"
#include "base/collective.hpp"
#include "base/status.hpp"
#include "base/types.hpp"
#include "route/route.hpp"

namespace nearlight::runtime {

// `count` is NCCL's: all_gather: elements of one rank's input; reduce_scatter: of one rank's output;
// all_to_all: that one rank gives to one other; broadcast, reduce: of the message.
struct CollectiveCall {
  Collective collective;
  const void* send;
  void* recv;
  std::size_t count;
  DataType type;
  Reduction op = ReduceOp::sum;  // reductions
  int root = 0;                  // has_root()
  // is_uneven() only. all_gather_v: elements that each rank gives, the same on all, and where they go in recv
  // (null: one behind the other). reduce_scatter_v: elements that each rank gets, the same on all, whose
  // contributions lie one behind the other in send. all_to_all_v: elements that this rank gets from each, and
  // where in recv; and that it gives to each, and from where in send. `count` is made of them (complete()).
  const std::size_t* counts = nullptr;
  const std::size_t* places = nullptr;
  const std::size_t* send_counts = nullptr;
  const std::size_t* send_places = nullptr;
};

// The call with the `count` that its log and its route go by: the largest part of any rank; of all_to_all_v,
// which alone knows no other rank's, 0.
CollectiveCall complete(CollectiveCall call, int nranks);

// Bytes of this rank's input and output; 0 where it has none (and the pointer is not looked at), and where
// arrays of counts are missing.
struct CallBytes {
  std::size_t send = 0, recv = 0;
};
CallBytes bytes_of(const CollectiveCall& call, int rank, int nranks);

// What counters count: with even parts `count` elements, else what this rank gives.
inline std::size_t input_bytes(const CollectiveCall& call, int rank, int nranks) {
  return is_uneven(call.collective) ? bytes_of(call, rank, nranks).send : call.count * size_of(call.type);
}

// Code::invalid_argument names the argument. Also with count 0, but then no pointer is looked at.
// `may_overlap`: see CallOptions.
Status check_call(const CollectiveCall& call, int rank, int nranks, bool may_overlap = false);

// In bytes where they are moved, in elements where they are reduced. Not `span`. The call has been checked.
algorithm::Parts parts_of(const CollectiveCall& call, int rank, int nranks);

// The units of each part that a group takes in a round: from what is the same on all ranks.
// `agrees`: the ranks tell each other their largest part.
std::uint32_t span_of(const route::Facts& facts, const route::Route& route, bool agrees);
// Whether they do.
constexpr bool agrees_on_most(Collective collective) { return collective == Collective::all_to_all_v; }

}  // namespace nearlight::runtime
