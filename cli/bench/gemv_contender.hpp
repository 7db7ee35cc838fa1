// A matrix product whose columns are spread over the ranks, with the AllReduce that follows it: fused into
// one kernel, one after the other, and the product alone.
//
// To the engine they are all-reduces: a token's vector is 1 at its own number and 0 elsewhere, and the
// message stands in the matrix's first columns, so that the product of a rank is its message. The product
// alone gets there what all ranks' messages add up to. A call takes the next of several matrices, together
// larger than the GPU's L2 cache, as a model's layers do.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cli/bench/contender.hpp"
#include "runtime/communicator.hpp"

namespace nearlight::bench {

// Columns of the matrix a rank, and vectors; the message has `tokens` times as many elements as the matrix
// has rows.
struct GemvShape {
  std::size_t in = 0, tokens = 1;
};

// On `device`, of a GPU, for the life of what is made here. `communicator`: of all ranks.
// "nearlight_gemv": without an exchange; "nearlight_gemv_all_reduce": Communicator::gemv; and for each of
// `inner`, by its name and "_after_gemv": the product and then that all-reduce.
// Code::cuda_error and those of create_cuda_local().
Result<std::vector<std::unique_ptr<Contender>>> make_gemv_contenders(
    const std::shared_ptr<runtime::Communicator>& communicator, const runtime::CallOptions& options,
    const GemvShape& shape, int device, std::vector<std::unique_ptr<Contender>> inner);

}  // namespace nearlight::bench
