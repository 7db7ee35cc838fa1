// A matrix product spread over the ranks, with the exchange that goes with it: in one kernel, one after the
// other, and the product alone. A call takes the next of several matrices, together larger than the GPU's L2
// cache, as a model's layers do.
//
// Columns spread, and the AllReduce behind it: to the engine they are all-reduces. A token's vector is 1 at
// its own number and 0 elsewhere, and the message stands in the matrix's first columns, so that the product
// of a rank is its message. The product alone gets there what all ranks' messages add up to.
//
// Rows spread, and the AllGather of the vectors in front: to the engine they are all-gathers, whose message
// the vectors are. The matrix takes over some of their elements, as many as it has rows, the next ones in
// each turn, and nothing else: these are looked at in what it gives, and the rest is what a plain all-gather
// gave. In the fused kernel a rank's part of the message is its part of each token; the others multiply what
// a plain all-gather leaves, part behind part, as if it were the tokens (they are for one token; for more a
// program would have to bring them in order first, which nobody does here).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cli/bench/contender.hpp"
#include "runtime/communicator.hpp"

namespace nearlight::bench {

struct GemvShape {
  bool gathers = false;
  // Columns of a rank's matrix, whose message has `tokens` times as many elements as it has rows; where
  // vectors are gathered, its rows, and the message has `tokens` times as many elements as it has columns.
  std::size_t size = 0;
  std::size_t tokens = 1;
};

// On `device`, of a GPU, for the life of what is made here. `communicator`: of all ranks.
// "nearlight_gemv": without an exchange; "nearlight_gemv_all_reduce", "nearlight_all_gather_gemv":
// Communicator::gemv; and for each of `inner`, by its name and "_after_gemv" or "_then_gemv": that exchange
// and the product in a kernel of its own. Code::cuda_error and those of create_cuda_local().
Result<std::vector<std::unique_ptr<Contender>>> make_gemv_contenders(
    const std::shared_ptr<runtime::Communicator>& communicator, const runtime::CallOptions& options,
    const GemvShape& shape, int device, std::vector<std::unique_ptr<Contender>> inner);

}  // namespace nearlight::bench
